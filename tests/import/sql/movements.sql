-- One event per movement: a view that numbers the events, and a sink that takes updates.
SET 'pipeline.name' = 'stock-movements-deduplication';

CREATE TABLE `Stock movements`
(
  `movementid`                   STRING,
  `warehouse`                    STRING,
  `product`                      STRING,
  `quantity`                     BIGINT,
  `updatetime`                   TIMESTAMP(9),
  `event_time`                   TIMESTAMP(6) METADATA FROM 'timestamp',
  WATERMARK FOR `event_time` AS `event_time` - INTERVAL '1' MINUTE
)
WITH (
  'connector' = 'kafka',
  'topic' = 'STOCK.MOVEMENT',
  'properties.bootstrap.servers' = 'event-manager:443',
  'properties.security.protocol' = 'SASL_SSL',
  'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="kafka-demo-apps" password="swordfish";',
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
);

CREATE TEMPORARY VIEW `Keep one event per movement ID` AS
SELECT
   movementid,
   warehouse,
   product,
   quantity,
   updatetime,
   event_time
FROM (
   SELECT *,
      ROW_NUMBER() OVER (PARTITION BY movementid ORDER BY event_time ASC) AS rownum
   FROM
      `Stock movements`
)
WHERE 
   rownum = 1;

CREATE TABLE `Unique stock movements`
(
   `movementid`                   STRING,
   `warehouse`                    STRING,
   `product`                      STRING,
   `quantity`                     BIGINT,
   `updatetime`                   TIMESTAMP(9),
   `event_time`                   TIMESTAMP(6) METADATA FROM 'timestamp',
   PRIMARY KEY (`movementid`) NOT ENFORCED
)
WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'STOCK.MOVEMENT.UNIQUE',
  'properties.bootstrap.servers' = 'event-manager:443',
  'key.format' = 'raw',
  'value.format' = 'json'
);

INSERT INTO `Unique stock movements` SELECT * FROM `Keep one event per movement ID`;
