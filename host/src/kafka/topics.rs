//! The topics of a pipeline: whether they are there, how many partitions they have, how missing ones are made, and
//! whether a changelog is one.

use std::collections::BTreeMap;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigEntry, ConfigSource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaRespErr;

use super::client::{Clients, PATIENCE};
use super::reach::reach;
use super::settings::plain;
use crate::config::kafka::Create;
use crate::files::Trouble;

/// Settings of a changelog topic (reliability 4.8); the copies are set apart.
pub const CHANGELOG: [(&str, &str); 7] = [
    ("cleanup.policy", "compact"),
    ("unclean.leader.election.enable", "false"),
    ("segment.bytes", "67108864"),
    ("segment.ms", "600000"),
    ("min.cleanable.dirty.ratio", "0.2"),
    ("delete.retention.ms", "86400000"),
    ("max.compaction.lag.ms", "3600000"),
];

/// A topic as it should be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub topic: String,
    /// Its partitions.
    pub partitions: i32,
    /// Its copies; -1: the broker's default.
    pub replication: i32,
    /// Its settings.
    pub config: BTreeMap<String, String>,
}

impl Wanted {
    /// A changelog topic for a source topic with so many partitions.
    pub fn changelog(topic: String, partitions: i32, replication: i32) -> Wanted {
        let mut config: BTreeMap<String, String> =
            CHANGELOG.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if replication >= 3 {
            config.insert("min.insync.replicas".to_owned(), "2".to_owned());
        }
        Wanted { topic, partitions, replication, config }
    }

    /// An output topic; `partitions`: those of the source. Updating output is compacted.
    pub fn output(topic: String, create: &Create, partitions: i32, updates: bool) -> Wanted {
        let mut config = create.config.clone();
        if updates {
            config.entry("cleanup.policy".to_owned()).or_insert_with(|| "compact".to_owned());
        }
        Wanted {
            topic,
            partitions: create.partitions.unwrap_or(partitions),
            replication: create.replication.unwrap_or(-1),
            config,
        }
    }

    /// The same with no more copies than a cluster of so many brokers can have.
    #[must_use]
    pub fn within(mut self, brokers: i32) -> Wanted {
        if self.replication > brokers {
            self.replication = brokers;
            self.config.remove("min.insync.replicas");
        }
        self
    }

    /// The command that makes it, with Kafka's own tools.
    pub fn command(&self, brokers: &str) -> String {
        let mut command = format!(
            "kafka-topics.sh --bootstrap-server {brokers} --create --topic {} --partitions {}",
            self.topic, self.partitions
        );
        if self.replication > 0 {
            command.push_str(&format!(" --replication-factor {}", self.replication));
        }
        for (name, value) in &self.config {
            command.push_str(&format!(" --config {name}={value}"));
        }
        command
    }
}

/// What another topic is made like.
#[derive(Clone, Debug)]
pub struct Like {
    /// Partitions of the topic.
    pub partitions: i32,
    /// Settings that are its own.
    pub config: BTreeMap<String, String>,
    /// Brokers of the cluster.
    pub brokers: i32,
}

/// What a topic is like, so that another can be made like it.
pub fn like(clients: &Clients, topic: &str) -> Result<Like, Trouble> {
    let topics = Topics::new(clients)?;
    let missing = || {
        Trouble::new(
            format!("there is no topic {topic} at {}", topics.brokers),
            "check its name, and whether this user may describe it",
        )
    };
    let partitions = topics.partitions(topic)?.ok_or_else(missing)?;
    let config = topics.entries(topic)?.into_iter().filter(|e| e.source == ConfigSource::DynamicTopic);
    let config = config.filter_map(|e| Some((e.name, e.value?))).collect();
    let metadata = topics.client.inner().fetch_metadata(Some(topic), PATIENCE);
    let brokers = metadata.map_or(1, |metadata| metadata.brokers().len() as i32);
    Ok(Like { partitions, config, brokers })
}

/// Asks the cluster about topics, and makes them.
pub struct Topics {
    client: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
    brokers: String,
}

impl Topics {
    /// Connects.
    ///
    /// # Errors
    /// The cluster does not answer, or does not want us (`reach`).
    pub fn new(clients: &Clients) -> Result<Topics, Trouble> {
        let brokers = clients.brokers().to_owned();
        let client: AdminClient<DefaultClientContext> = clients.admin().create().map_err(|error| {
            Trouble::new(
                format!("the Kafka client cannot be made: {}", plain(&error)),
                "check the `properties` of source and sink",
            )
        })?;
        reach(&clients.admin(), &brokers)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| Trouble::new(format!("no runtime: {error}"), "raise the limits of the process"))?;
        Ok(Topics { client, runtime, brokers })
    }

    /// Number of partitions; `None`: there is no such topic.
    pub fn partitions(&self, topic: &str) -> Result<Option<i32>, Trouble> {
        let metadata = self.client.inner().fetch_metadata(Some(topic), PATIENCE).map_err(|error| {
            Trouble::new(
                format!("no answer from Kafka at {}: {error}", self.brokers),
                "check `source.kafka.brokers`, and whether the cluster is up",
            )
        })?;
        let named = metadata.topics().iter().find(|t| t.name() == topic);
        if let Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) = named.and_then(|t| t.error()) {
            return Err(Trouble::new(
                format!("Kafka at {} does not tell this user of a topic {topic}", self.brokers),
                "it needs DESCRIBE on it; whether there is such a topic is not known",
            ));
        }
        let found = named.filter(|t| t.error().is_none());
        Ok(found.map(|t| t.partitions().len() as i32).filter(|&n| n > 0))
    }

    /// Number of brokers.
    pub fn nodes(&self) -> Result<i32, Trouble> {
        let metadata = self.client.inner().fetch_metadata(None, PATIENCE);
        let metadata = metadata.map_err(|error| {
            Trouble::new(
                format!("no answer from Kafka at {}: {error}", self.brokers),
                "check whether the cluster is up",
            )
        })?;
        Ok(i32::try_from(metadata.brokers().len()).unwrap_or(i32::MAX))
    }

    /// Makes a topic.
    pub fn create(&self, wanted: &Wanted) -> Result<(), Trouble> {
        let mut new = NewTopic::new(&wanted.topic, wanted.partitions, TopicReplication::Fixed(wanted.replication));
        for (name, value) in &wanted.config {
            new = new.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
        let done = self.runtime.block_on(self.client.create_topics([&new], &options));
        let why = match done.map(|results| results.into_iter().next()) {
            Ok(Some(Err((_, rdkafka::types::RDKafkaErrorCode::TopicAlreadyExists))) | None | Some(Ok(_))) => None,
            Ok(Some(Err((_, code)))) => Some(code.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            let nodes = self.nodes().unwrap_or(i32::MAX);
            let way_out = match wanted.replication > nodes {
                true => format!(
                    "{} copies need as many brokers, there are {nodes}: `replication: {nodes}` beside its `create`",
                    wanted.replication
                ),
                false => format!("make it yourself: {}", wanted.command(&self.brokers)),
            };
            return Err(Trouble::new(format!("the topic {} cannot be made: {why}", wanted.topic), way_out));
        }
        // The broker answers before every broker knows of it.
        for _ in 0..100 {
            if self.partitions(&wanted.topic)?.is_some() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Err(Trouble::new(format!("the topic {} was made and is not to be seen", wanted.topic), "run again"))
    }

    /// Settings of a topic.
    pub fn settings(&self, topic: &str) -> Result<BTreeMap<String, String>, Trouble> {
        Ok(self.entries(topic)?.into_iter().filter_map(|e| Some((e.name, e.value?))).collect())
    }

    fn entries(&self, topic: &str) -> Result<Vec<ConfigEntry>, Trouble> {
        let options = AdminOptions::new().request_timeout(Some(PATIENCE));
        let specifier = [ResourceSpecifier::Topic(topic)];
        let trouble = |why: String| {
            Trouble::new(
                format!("the settings of the topic {topic} cannot be read: {why}"),
                "allow this user DESCRIBE_CONFIGS on it",
            )
        };
        // One of several brokers may not know yet of a topic that was just made: it has no settings there.
        for _ in 0..100 {
            let answer = self.runtime.block_on(self.client.describe_configs(&specifier, &options));
            let resource = answer.map_err(|error| trouble(error.to_string()))?.into_iter().next();
            match resource.ok_or_else(|| trouble("no answer".to_owned()))? {
                Ok(resource) if !resource.entries.is_empty() => return Ok(resource.entries),
                Ok(_) | Err(rdkafka::types::RDKafkaErrorCode::UnknownTopicOrPartition) => {}
                Err(code) => return Err(trouble(code.to_string())),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Err(trouble("the broker does not know it".to_owned()))
    }

    /// Sees to it that a topic is there, and gives its number of partitions. A missing one is made: those that may not
    /// be were refused before (`needs`).
    pub fn ensure(&self, wanted: &Wanted) -> Result<i32, Trouble> {
        if let Some(found) = self.partitions(&wanted.topic)? {
            return Ok(found);
        }
        self.create(wanted)?;
        tracing::info!("made the topic {} with {} partitions", wanted.topic, wanted.partitions);
        Ok(wanted.partitions)
    }

    /// Refuses a changelog topic that loses state, and one with more partitions than its source.
    pub fn verify_changelog(&self, wanted: &Wanted, found: i32) -> Result<(), Trouble> {
        let topic = &wanted.topic;
        if found > wanted.partitions {
            return Err(Trouble::new(
                format!(
                    "partition_count_changed: the source has {} partitions, the changelog {topic} has {found}",
                    wanted.partitions
                ),
                "the source was made anew: give the pipeline a new `name`, which begins with empty state",
            ));
        }
        let settings = self.settings(topic)?;
        let policy = settings.get("cleanup.policy").map_or("", String::as_str);
        if policy != "compact" {
            return Err(Trouble::new(
                format!("the changelog {topic} has cleanup.policy={policy}: state would be deleted while it is in use"),
                format!(
                    "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=compact",
                    self.brokers
                ),
            ));
        }
        if settings.get("unclean.leader.election.enable").is_some_and(|v| v == "true") {
            tracing::warn!("the changelog {topic} allows unclean leader election: state may be lost with a broker");
        }
        Ok(())
    }

    /// Where the cluster is.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }
}
