//! A broker that wants TLS and passwords: every verb gets through, secrets are not told, and mistakes are.

use std::process::Command;
use std::sync::OnceLock;

use tamis_tests::kafka::broker::Cluster;
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, Ran};

/// As `cargo xtask kafka serve --secured` knows them.
const PASSWORD: &str = "alice-has-a-secret";
const MALLORYS: &str = "mallory-has-one-too";

/// The cluster of these tests, and the folder with its certificates.
fn cluster() -> &'static (Cluster, Folder) {
    static OURS: OnceLock<(Cluster, Folder)> = OnceLock::new();
    OURS.get_or_init(|| {
        let folder = Folder::new("secured-broker");
        certificates(&folder);
        let cluster = Cluster::start_secured(&folder.path("")).unwrap_or_else(|error| panic!("{error}"));
        (cluster, folder)
    })
}

/// A CA, the broker's key with a certificate of it, and another CA that signed nothing.
fn certificates(folder: &Folder) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder.path("")).output();
        let made = made.expect("these tests need openssl (Debian, Ubuntu: `apt-get install openssl`)");
        assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
    };
    for name in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
    }
    folder.write("names", "subjectAltName=IP:127.0.0.1\n");
    openssl("req -newkey rsa:2048 -nodes -subj /CN=broker -keyout broker.key -out broker.csr");
    openssl("x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out broker.crt");
    openssl("pkcs8 -topk8 -nocrypt -in broker.key -out broker.pem");
    folder.write("broker.pem", [folder.read("broker.pem"), folder.read("broker.crt"), folder.read("ca.pem")].concat());
}

/// A topic with three records, and a pipeline over it.
struct Job {
    folder: Folder,
    source: String,
    sink: String,
}

impl Job {
    fn new(area: &str) -> Job {
        let name = unique(area);
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        let (cluster, _) = cluster();
        cluster.create(&source, 1, &[]);
        cluster.write(&source, &[1, 2, 1].map(|id| Rec::new("k", &format!("{{\"id\":{id}}}"))));
        let job = Job { folder: Folder::new(&name), source, sink };
        job.file(&name, "SCRAM-SHA-256", "ca.pem", cluster.secured());
        job
    }

    fn file(&self, name: &str, mechanism: &str, ca: &str, brokers: &str) {
        let Job { source, sink, .. } = self;
        let ca = cluster().1.path(ca);
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1
name: {name}
source:
  kafka:
    topics: {source}
    brokers: '{brokers}'
    until: end
    properties:
      security.protocol: SASL_SSL
      sasl.mechanism: {mechanism}
      sasl.username: alice
      sasl.password: {{ from_env: PASSWORD }}
      ssl.ca.location: {}
stages:
  - {{ uses: dedup, id: d, key: value.id, state: {{ unbounded: true }} }}
sink: {{ kafka: {{ topic: {sink}, create: {{}} }} }}
state: {{ changelog: {{ create: true, replication: 1 }} }}
run: {{ http: none }}
",
                ca.display()
            ),
        );
    }

    fn change(&self, from: &str, to: &str) {
        let file = self.folder.read("p.yaml");
        assert!(file.contains(from), "{from}");
        self.folder.write("p.yaml", file.replace(from, to));
    }

    /// Runs with a password; whatever happens it is not told.
    #[track_caller]
    fn run_as(&self, password: &str, arguments: &[&str]) -> Ran {
        let ran = Ran(self.folder.command(arguments).env("PASSWORD", password).output().expect("tamis runs"));
        for text in [ran.out(), ran.err()] {
            assert!(!text.contains(password), "a secret is told:\n{text}");
        }
        ran
    }
}

#[test]
fn every_verb_gets_through_tls_and_passwords() {
    let job = Job::new("secured");
    job.run_as(PASSWORD, &["-vv", "run", "p.yaml"]).exits(0).says(&["3 in, 2 out, 1 duplicates"]);
    job.run_as(PASSWORD, &["reset", "p.yaml", "--to", "earliest", "--forget"]).exits(0);
    job.change("SCRAM-SHA-256", "PLAIN");
    job.run_as(PASSWORD, &["run", "p.yaml"]).exits(0).says(&["3 in, 2 out, 1 duplicates"]);
    assert!(job.run_as(PASSWORD, &["plan", "p.yaml"]).exits(0).out().contains("from_env: PASSWORD"));
    let ca = format!("ssl.ca.location={}", cluster().1.path("ca.pem").display());
    let to = format!("{}-too", job.sink);
    let call = ["dedup", "--from", &job.source, "--to", &to, "--key", "id", "--until", "end", "--create", "--brokers"];
    let mut call = [&call[..], &[cluster().0.secured()]].concat();
    let secret = "sasl.password={from_env: PASSWORD}";
    for property in ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=alice", secret, &ca] {
        call.extend(["--property", property]);
    }
    job.run_as(PASSWORD, &call).exits(0).says(&["3 in, 2 out, 1 duplicates"]);
    let told: Vec<&str> =
        call.iter().map(|&word| if word == secret { "sasl.password=in-the-open" } else { word }).collect();
    job.run_as("in-the-open", &told).exits(2).says(&["`sasl.password` is a secret", "from_env"]);
}

#[test]
fn a_wrong_password_or_certificate_is_told_at_once() {
    let job = Job::new("mistakes");
    let began = std::time::Instant::now();
    for arguments in [&["run", "p.yaml"][..], &["reset", "p.yaml", "--to", "earliest"]] {
        job.run_as("wrong-word", arguments).exits(3).says(&["invalid credentials", "check `sasl.mechanism`"]);
    }
    job.change("ca.pem", "other.pem");
    job.run_as(PASSWORD, &["run", "p.yaml"]).exits(3).says(&["certificate verify failed", "`ssl.ca.location`"]);
    assert!(began.elapsed().as_secs() < 20, "not at once: {:?}", began.elapsed());
    job.change("other.pem", "ca.pem");
    job.change(cluster().0.secured(), cluster().0.brokers());
    job.run_as(PASSWORD, &["run", "p.yaml"]).exits(3).says(&["PLAINTEXT", "`security.protocol` do not go together"]);
}

#[test]
fn settings_that_the_client_does_not_know_are_refused_where_they_stand() {
    let job = Job::new("unknown");
    job.change("sasl.password", "sasl.passwrd");
    job.run_as(PASSWORD, &["plan", "p.yaml"]).exits(2).says(&["P-VALUE", "p.yaml:12:7", "`sasl.passwrd` is no client"]);
    job.change("sasl.passwrd: { from_env: PASSWORD }", "sasl.password: in-the-open");
    let planned = job.run_as("in-the-open", &["plan", "p.yaml"]).exits(0).out();
    assert!(planned.contains("sasl.password: not shown"), "{planned}");
}

#[test]
fn a_user_without_permission_is_told_what_to_check() {
    let job = Job::new("permission");
    job.change("SCRAM-SHA-256", "PLAIN");
    job.change("alice", "mallory");
    job.run_as(MALLORYS, &["run", "p.yaml"])
        .exits(3)
        .says(&["does not tell this user of a topic", "it needs DESCRIBE"]);
}
