-- Log lines made unique, from simple to complex; each query is a pipeline of its own.
CREATE TABLE raw_logs (
  log_time TIMESTAMP(3),
  reqid    VARCHAR(40),    -- Request ID (deduplication key)
  service  VARCHAR(20),    -- Service name
  level    VARCHAR(10),    -- Log level
  message  STRING,         -- Log content
  proc_time AS PROCTIME(), -- Processing time
  
  -- Event time configuration (Optional)
  WATERMARK FOR log_time AS log_time - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'raw_logs',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true'
);

CREATE TABLE dedup_logs_simple (
  reqid    VARCHAR(40) PRIMARY KEY NOT ENFORCED,
  log_time TIMESTAMP(3),
  service  VARCHAR(20),
  message  STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'dedup_logs',
  'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'json'
);

INSERT INTO dedup_logs_simple
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY reqid
      ORDER BY proc_time DESC    -- Keep latest by processing time
    ) AS row_num
  FROM raw_logs
) 
WHERE row_num = 1;

INSERT INTO dedup_logs_simple
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY reqid, service  -- Partition by composite key
      ORDER BY proc_time DESC       -- Keep latest by processing time
    ) AS row_num
  FROM raw_logs
) 
WHERE row_num = 1;

INSERT INTO dedup_logs_simple
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY reqid, 
                   HOUR(proc_time)  -- Partition by hour
      ORDER BY proc_time ASC        -- Keep the first record per hour
    ) AS row_num
  FROM raw_logs
) 
WHERE row_num = 1;

CREATE TABLE dedup_event_time (
  reqid    VARCHAR(40),
  log_time TIMESTAMP(3),
  service  VARCHAR(20),
  message  STRING
) WITH (/* Kafka configuration */);

INSERT INTO dedup_event_time
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY reqid
      ORDER BY log_time DESC    -- Sort by event time
    ) AS row_num
  FROM raw_logs
  WHERE WATERMARK(log_time) IS NOT NULL -- Ensure event time is valid
) 
WHERE row_num = 1;

-- A prefix in front of the key, as an optimisation that is none.
INSERT INTO dedup_logs_simple
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY SUBSTRING(reqid, 1, 4), reqid
      ORDER BY proc_time DESC
    ) AS row_num
  FROM raw_logs
)
WHERE row_num = 1;

-- The hour with its date.
INSERT INTO dedup_event_time
SELECT reqid, log_time, service, message
FROM (
  SELECT *,
    ROW_NUMBER() OVER (
      PARTITION BY reqid, DATE_FORMAT(log_time, 'yyyy-MM-dd HH')
      ORDER BY log_time ASC
    ) AS row_num
  FROM raw_logs
)
WHERE row_num = 1;

SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.size' = '5000';
