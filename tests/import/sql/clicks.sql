-- The click example as it runs against Kafka: a table, its rows, the query.
CREATE TABLE clicks (
    ip_address VARCHAR, 
    url VARCHAR,
    ts TIMESTAMP(3),
    -- declare ts as event time attribute and use strictly ascending timestamp watermark strategy
    WATERMARK FOR ts AS ts
) WITH (
    'connector' = 'kafka',
    'topic' = 'clicks',
    'properties.bootstrap.servers' = 'broker:9092',
    'scan.startup.mode' = 'earliest-offset',
    'key.format' = 'raw',
    'key.fields' = 'ip_address',
    'value.format' = 'avro-confluent',
    'value.avro-confluent.url' = 'http://schema-registry:8081',
    'value.fields-include' = 'EXCEPT_KEY'
);
INSERT INTO clicks
VALUES ('10.0.0.1',  'https://acme.com/index.html',    TO_TIMESTAMP('2023-07-09 01:00:00')),
       ('10.0.0.12', 'https://amazon.com/index.html',  TO_TIMESTAMP('2023-07-09 01:10:00')),
       ('10.0.0.13', 'https://confluent/index.html',   TO_TIMESTAMP('2023-07-09 01:20:00')),
       ('10.0.0.1',  'https://acme.com/index.html',    TO_TIMESTAMP('2023-07-09 01:30:00')),
       ('10.0.0.12', 'https://amazon.com/index.html',  TO_TIMESTAMP('2023-07-09 01:40:00')),
       ('10.0.0.1',  'https://acme.com/index.html',    TO_TIMESTAMP('2023-07-09 02:10:00')),
       ('10.0.0.1',  'https://acme.com/index.html',    TO_TIMESTAMP('2023-07-09 03:10:00'));
SELECT window_start, window_end, ip_address, url
FROM (
       SELECT window_start, window_end, ip_address, url,
         ROW_NUMBER() OVER ( PARTITION BY window_start, window_end, ip_address, url ORDER BY ts ) AS rownum
       FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))
      )
WHERE rownum <= 1;
