//! The input: records with a key, a number and a hash, some with the key of an earlier one.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;

use crate::{Arguments, Failure, number, text};

/// A number from the last one.
pub struct Random(pub u64);

impl Random {
    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound.max(1)
    }
}

/// Hash of a text (FNV-1a, 64 bits), so that a changed record shows.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Writes the records: in the partition of their key's hash, as Java clients do, so that copies meet.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (brokers, topic) = (text(arguments, "brokers")?, text(arguments, "topic")?);
    let records = number(arguments, "records", 200_000)?;
    let duplicates = number(arguments, "duplicates", 20)?;
    let rate = number(arguments, "rate", 0)?;
    let seed = number(arguments, "seed", 1)?;
    let mut random = Random(seed);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("client.id", "verifier")
        .set("enable.idempotence", "true")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "300000")
        .create()
        .map_err(|error| error.to_string())?;
    let began = Instant::now();
    let mut unique = 0;
    for n in 0..records {
        let copy = unique > 0 && random.below(100) < duplicates;
        let id = if copy { random.below(unique) } else { unique };
        unique += u64::from(!copy);
        let key = format!("user-{id}");
        let hash = hash(&format!("{seed}/{key}/{n}"));
        let value = format!("{{\"id\":\"{key}\",\"producer\":{seed},\"n\":{n},\"hash\":\"{hash:016x}\"}}");
        loop {
            let record = BaseRecord::<str, str>::to(topic).key(&key).payload(&value);
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    producer.poll(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error.to_string()),
            }
        }
        if n % 100 == 0 {
            producer.poll(Duration::ZERO);
            let due = if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(n as f64 / rate as f64) };
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    producer.flush(Duration::from_secs(300)).map_err(|error| error.to_string())?;
    println!("{{\"records\":{records},\"unique\":{unique},\"seconds\":{:.1}}}", began.elapsed().as_secs_f64());
    Ok(())
}
