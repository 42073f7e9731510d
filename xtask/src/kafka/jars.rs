//! Apache Kafka as Maven artifacts, and the Java that runs them: looked for once, kept below `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::setup;
use crate::steps;

/// The Kafka of tests and demonstrations.
pub const VERSION: &str = "4.4.0";
/// The oldest Java that runs its broker.
const OLDEST_JAVA: u32 = 17;
/// What Maven calls what we need; the rest follows from it.
const ARTIFACTS: [(&str, &str, &str); 4] = [
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-core", "2.25.3"),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
];
/// The log on standard output: trouble, and that a node is up.
const LOG_SETTINGS: &str = "\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss.SSS} %p %c{1} %m%n
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=info
";

/// Everything of Kafka lies here: artifacts, clusters of tests, the cluster of `kafka up`.
pub fn folder() -> PathBuf {
    setup::root().join("target").join("kafka")
}

/// Artifacts and log settings that are ready to be run.
#[derive(Clone, Debug)]
pub struct Jars {
    jars: PathBuf,
    log_settings: PathBuf,
}

impl Jars {
    /// Checks Java; lets Maven fetch the artifacts if they are not there yet.
    pub fn find() -> Result<Jars> {
        check_java()?;
        let jars = folder().join(format!("jars-{VERSION}"));
        if !jars.is_dir() {
            fetch(&jars)?;
        }
        let log_settings = jars.join("log4j2.properties");
        fs::write(&log_settings, LOG_SETTINGS).with_context(|| format!("cannot write {}", log_settings.display()))?;
        Ok(Jars { jars, log_settings })
    }

    /// A command that runs a class, with this much heap.
    pub fn java(&self, class: &str, heap: &str) -> Command {
        let mut settings = std::ffi::OsString::from("-Dlog4j2.configurationFile=");
        settings.push(&self.log_settings);
        let mut java = Command::new("java");
        // One small node on a busy machine: quick to start, few threads.
        java.args([heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]).arg(settings);
        java.arg("-cp").arg(self.jars.join("*")).arg(class);
        java
    }
}

fn check_java() -> Result<()> {
    const WAY_OUT: &str = "Way out: install Java 17 or newer (on Debian or Ubuntu `apt-get install \
                           openjdk-17-jre-headless`), or let tests use a cluster of yours: TAMIS_TEST_BROKERS=HOST:PORT";
    let output = match Command::new("java").arg("-version").output() {
        Ok(output) => output,
        Err(error) => bail!("Apache Kafka needs Java, and `java` cannot be run ({error}). {WAY_OUT}"),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match java_version(&text) {
        Some(version) if version >= OLDEST_JAVA => Ok(()),
        _ => bail!(
            "Apache Kafka needs Java {OLDEST_JAVA}, `java -version` says: {}. {WAY_OUT}",
            text.lines().next().unwrap_or("nothing")
        ),
    }
}

/// The major version in `openjdk version "17.0.15" 2025-04-15`.
fn java_version(text: &str) -> Option<u32> {
    text.split('"').nth(1)?.split(['.', '-', '+']).next()?.parse().ok()
}

/// Lets Maven put the artifacts into a folder, whole or not at all.
fn fetch(jars: &Path) -> Result<()> {
    if Command::new("mvn").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        bail!(
            "Apache Kafka {VERSION} is fetched by Maven, and `mvn` cannot be run. Way out: install it (on Debian or \
             Ubuntu `apt-get install maven`), or let tests use a cluster of yours: TAMIS_TEST_BROKERS=HOST:PORT"
        );
    }
    // Two of us may fetch at once: each into its own folder, the first that is through wins.
    let own = folder().join(format!("fetching-{}", std::process::id()));
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    fs::write(own.join("pom.xml"), pom())?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]).current_dir(&own);
    // Standard output belongs to whoever runs us and reads our answers.
    maven.stdout(std::io::stderr());
    steps::run(&format!("fetching Apache Kafka {VERSION} by Maven (once, 54 MB)"), &mut maven)
        .context("Way out: Maven must reach its repository, directly or as its settings.xml says")?;
    let moved = fs::rename(own.join("jars"), jars);
    let _ = fs::remove_dir_all(&own);
    match moved {
        Err(error) if !jars.is_dir() => Err(error).with_context(|| format!("cannot make {}", jars.display())),
        _ => Ok(()),
    }
}

/// A project that is nothing but its dependencies.
fn pom() -> String {
    let dependencies: String = ARTIFACTS
        .iter()
        .map(|(group, artifact, version)| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>\n"
            )
        })
        .collect();
    format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>tamis</groupId><artifactId>kafka</artifactId>\
         <version>1</version><packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies></project>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::java_version;

    #[test]
    fn versions_of_java_are_read() {
        assert_eq!(java_version("openjdk version \"17.0.15\" 2025-04-15\nmore"), Some(17));
        assert_eq!(java_version("java version \"1.8.0_392\""), Some(1));
        assert_eq!(java_version("openjdk version \"21-ea\" 2023-09-19"), Some(21));
        assert_eq!(java_version("sh: java: not found"), None);
    }
}
