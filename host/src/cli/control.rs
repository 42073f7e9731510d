//! How one process of tamis asks another: a running pipeline leaves in its state directory where it can be reached, and
//! the token that it wants to see. Whoever can read the state may ask.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::exit::Failure;
use super::load;
use crate::files::Trouble;
use crate::files::place;

/// Name of the file.
const NAME: &str = "control";
/// How long an answer may take: a guest may have to be compiled, a commit may wait for a broker.
const PATIENCE: Duration = Duration::from_secs(300);

/// Files that say where this process can be reached; they go with this value.
#[derive(Debug)]
pub struct Announced(Vec<PathBuf>);

impl Drop for Announced {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Says in the folders of the pipelines that run here where they can be reached.
pub fn announce(address: Option<SocketAddr>, token: &str, folders: &[PathBuf]) -> Result<Announced, Trouble> {
    let mut announced = Announced(Vec::new());
    let content = address.map(|address| {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let address = SocketAddr::new(ip, address.port()).to_string();
        format!("{}\n", json!({ "address": address, "token": token, "pid": std::process::id() }))
    });
    for folder in folders {
        let path = folder.join(NAME);
        // One that a killed run left names a place where nobody is.
        let _ = std::fs::remove_file(&path);
        let Some(content) = &content else { continue };
        let mut options = std::fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&path).and_then(|mut file| file.write_all(content.as_bytes()));
        written.map_err(|error| Trouble::io("write", &path, &error))?;
        announced.0.push(path);
    }
    Ok(announced)
}

/// A process that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    address: String,
    token: String,
}

/// The process that holds a state directory; nothing if none does.
pub fn holder(folder: &Path) -> Result<Option<Control>, Failure> {
    if !place::is_held(folder) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(folder.join(NAME)).ok();
    let found = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let member = |name: &str| found.as_ref().and_then(|found| found[name].as_str().map(str::to_owned));
    match (member("address"), member("token")) {
        (Some(address), Some(token)) => Ok(Some(Control { address, token })),
        _ => Err(Failure::environment(format!(
            "a run holds {}, but it cannot be asked: it is just starting, or serves nothing (`run.http: none`)",
            folder.display()
        ))
        .help("`kill -HUP PID` lets it read its file again")
        .help("let it serve: `run: { http: 127.0.0.1:0 }`; or stop it, ask, and start it again")),
    }
}

impl Control {
    /// Asks, and gives the status of HTTP and the answer.
    pub fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let gone = |error: std::io::Error| {
            let why = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("for {} s", PATIENCE.as_secs()),
                _ => load::plain(&error),
            };
            Failure::environment(format!("the run at {} does not answer: {why}", self.address))
                .help("look whether it still runs, and ask again; what it was asked for may have happened")
        };
        let answer = self.exchange(path, &body.to_string()).map_err(gone)?;
        let parsed = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            Some((status, serde_json::from_str(body.trim()).ok()?))
        });
        parsed.ok_or_else(|| {
            Failure::environment(format!("what answers at {} is not the run that was looked for", self.address))
                .help("it may have ended just now: ask again")
        })
    }

    fn exchange(&self, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // HTTP/1.0: the answer ends with the connection, and comes in one piece.
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::files::place::StateDir;

    #[test]
    fn a_run_is_found_by_its_folder_as_long_as_it_holds_it() {
        let folder = std::env::temp_dir().join(format!("tamis-control-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(holder(&folder).unwrap(), None, "nobody is there");
        let held = StateDir::open(&folder).unwrap();
        assert!(holder(&folder).unwrap_err().message.contains("cannot be asked"));
        let announced = announce(Some("0.0.0.0:7".parse().unwrap()), "secret", std::slice::from_ref(&folder)).unwrap();
        let expected = Control { address: "127.0.0.1:7".into(), token: "secret".into() };
        assert_eq!(holder(&folder).unwrap(), Some(expected));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(folder.join(NAME)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "only its user may read the token");
        }
        drop(announced);
        assert!(!folder.join(NAME).exists(), "it goes with the run");
        drop(held);
        assert_eq!(holder(&folder).unwrap(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
