//! What a filtered network costs: the first byte, one stream, many connections, the launch, and nothing while it is idle.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::{Bench, RUNS, WARM_UP, field, median, time};

/// With this argument it measures that alone: `tests/run --bench -- network`.
pub(crate) const ONLY_NETWORK: &str = "network";
/// With this argument, a host, a port and one of the words below the benchmark is a client.
pub(crate) const CLIENT: &str = "--network-client";

/// Milliseconds that the filter may add to the first byte, and to a launch.
const FIRST_BYTE_MAX: f64 = 1.0;
const LAUNCH_MAX: f64 = 3.0;
/// How much of the throughput without a filter one stream has at least, where each of three processes has a processor.
const STREAM_MIN: f64 = 0.8;
const STREAM_PROCESSORS: usize = 3;
/// The same of a stream by TLS in which a credential is exchanged.
const EXCHANGED_MIN: f64 = 0.3;
/// Connections at once, and the MB that the filter may take for them.
const MANY: usize = 1000;
const MANY_MAX: f64 = 40.0;
/// How long an idle filter is watched.
const IDLE: Duration = Duration::from_secs(3);

/// Bytes of a stream, and how often it is sent.
const STREAM: usize = 1 << 30;
const STREAMS: usize = 5;
const BLOCK: usize = 1 << 18;

/// A server by TLS: its port on a line, then to each request so many bytes; the arguments are that number and the program's directory.
const SECURED: &str = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2] + "/leaf.pem", sys.argv[2] + "/leaf.key")
length, block = int(sys.argv[1]), bytes(1 << 18)
def serve(plain):
    with context.wrap_socket(plain, server_side=True) as stream:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += stream.recv(65536)
        known = b"Bearer the-real-value" in asked
        stream.sendall(b"HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (200 if known else 401, length))
        for _ in range(length // len(block)):
            stream.sendall(block)
at = socket.create_server(("0.0.0.0", 0))
print(at.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=at.accept()[:1], daemon=True).start()
"#;
/// An authority, and a certificate of it for a host.
const CERTIFICATES: &str = r#"
new='req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9'
openssl $new -keyout ca.key -out ca.pem -subj /CN=bench -addext keyUsage=critical,keyCertSign &&
openssl $new -CA ca.pem -CAkey ca.key -keyout leaf.key -out leaf.pem -subj /CN=leaf -addext basicConstraints=critical,CA:FALSE \
    -addext extendedKeyUsage=serverAuth -addext "subjectAltName=DNS:$0""#;
/// Asks such a server, and prints bytes a second.
const ASK: &str = "exec curl -sSf -o /dev/null -w '%{speed_download}' -H \"Authorization: Bearer $BENCH_TOKEN\" \"$0\"";

/// One byte is asked for, or a stream.
const BYTE: u8 = 1;
const ALL: u8 = 2;

/// Connects to a server, and prints milliseconds; or connects many times, and waits for the end of its input.
pub(crate) fn client(arguments: &[String]) -> anyhow::Result<()> {
    let [host, port, what] = arguments else {
        anyhow::bail!("{CLIENT} HOST PORT WHAT");
    };
    let mut found = (host.as_str(), port.parse()?).to_socket_addrs()?;
    let at = found.find(SocketAddr::is_ipv4).context("no address")?;
    match what.as_str() {
        "byte" => {
            let times = (0..WARM_UP + RUNS).map(|_| byte(at));
            let mut times = times.collect::<anyhow::Result<Vec<f64>>>()?;
            println!("{}", median(&mut times[WARM_UP..]));
        }
        "stream" => println!("{}", stream(at)?),
        _ => {
            let held: Vec<TcpStream> = (0..MANY)
                .map(|_| asked(at, BYTE))
                .collect::<anyhow::Result<_>>()?;
            println!("{}", held.len());
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
    }
    Ok(())
}

fn asked(at: SocketAddr, what: u8) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(&[what])?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

fn byte(at: SocketAddr) -> anyhow::Result<f64> {
    let start = Instant::now();
    asked(at, BYTE)?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

fn stream(at: SocketAddr) -> anyhow::Result<f64> {
    let mut stream = asked(at, ALL)?;
    let (mut block, mut left) = (vec![0; BLOCK], STREAM);
    let start = Instant::now();
    while left > 0 {
        let read = stream.read(&mut block)?;
        anyhow::ensure!(read > 0, "the stream ended {left} bytes before its end");
        left -= read;
    }
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// A server in this process; its port.
fn server() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has enough ends its stream.
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut ask, block) = ([0], vec![0; BLOCK]);
    while stream.read(&mut ask)? == 1 {
        stream.write_all(b"x")?;
        if ask == [ALL] {
            (0..STREAM / BLOCK).try_for_each(|_| stream.write_all(&block))?;
        }
    }
    Ok(())
}

/// This host by its name, with a server.
struct Here {
    host: String,
    port: u16,
}

impl Here {
    fn new() -> anyhow::Result<Option<Self>> {
        let host = nix::unistd::gethostname()?;
        let host = host.to_string_lossy().into_owned();
        let found = (host.as_str(), 80).to_socket_addrs();
        if !found.is_ok_and(|mut all| all.any(|one| one.is_ipv4())) {
            return Ok(None);
        }
        let port = server()?;
        Ok(Some(Self { host, port }))
    }

    /// The client without a jail.
    fn direct(&self, what: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CLIENT, &self.host, &self.port.to_string(), what]);
        Ok(command)
    }

    /// The client in a session whose network is filtered.
    fn filtered(&self, launcher: &PathBuf, what: &str) -> anyhow::Result<Command> {
        let private = format!("network.private=[\"{}:{}\"]", self.host, self.port);
        let own = std::env::current_exe()?;
        let mut command = Command::new(launcher);
        command.args(["-q", "--set", "network.mode=filtered", "--set", &private]);
        command.arg("--read").arg(&own).arg("--").arg(&own);
        command.args([CLIENT, &self.host, &self.port.to_string(), what]);
        Ok(command)
    }
}

/// The figure that a client prints.
fn figure(mut command: Command) -> anyhow::Result<f64> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let said = String::from_utf8_lossy(&output.stderr);
    text.trim()
        .parse()
        .with_context(|| format!("{command:?}: {said}"))
}

/// A session with many connections, which end with it.
struct Held(Child);

impl Held {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut held = Self(child.spawn()?);
        let mut line = String::new();
        let stdout = held.0.stdout.as_mut().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(line.trim() == MANY.to_string(), "{line:?}, not {MANY}");
        Ok(held)
    }

    /// Its filter.
    fn filter(&self) -> anyhow::Result<PathBuf> {
        let process = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = std::fs::read_to_string(process)?;
        let mut all = children
            .split_whitespace()
            .map(|child| PathBuf::from("/proc").join(child));
        let is_filter = |at: &PathBuf| {
            let words = std::fs::read(at.join("cmdline")).unwrap_or_default();
            words.starts_with(b"agent-sandbox-filter\0")
        };
        all.find(is_filter).context("the session has no filter")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A process that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often all threads of a process have been switched to.
fn switches(process: &std::path::Path) -> anyhow::Result<u64> {
    let mut all = 0;
    for task in std::fs::read_dir(process.join("task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        all += field(&status, "voluntary_ctxt_switches:");
    }
    Ok(all)
}

impl Bench {
    pub(crate) fn network(&mut self) -> anyhow::Result<()> {
        let Some(here) = Here::new()? else {
            println!("not checked: a filtered network: this host's name has no address");
            return Ok(());
        };
        self.filtered_launch()?;
        let both =
            |what| Ok::<_, anyhow::Error>((here.direct(what)?, here.filtered(&self.binary, what)?));
        let (direct, filtered) = both("byte")?;
        let (direct, filtered) = (figure(direct)?, figure(filtered)?);
        let (mut plain, mut through) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            let (direct, filtered) = both("stream")?;
            plain.push(figure(direct)?);
            through.push(figure(filtered)?);
        }
        self.exchanged(&here)?;
        let held = Held::start(here.filtered(&self.binary, "many")?)?;
        let filter = held.filter()?;
        let status = std::fs::read_to_string(filter.join("status"))?;
        let before = switches(&filter)?;
        std::thread::sleep(IDLE);
        let woken = switches(&filter)? - before;

        self.row(
            "filtered: first byte, added",
            FIRST_BYTE_MAX,
            filtered - direct,
            " ms",
        );
        let ratio = median(&mut plain) / median(&mut through);
        let processors = std::thread::available_parallelism()?.get();
        if processors < STREAM_PROCESSORS {
            self.note("filtered: one stream / direct", &format!("{ratio:.2} ×"));
            println!(
                "not checked: its target of {STREAM_MIN}: server, filter and client share {processors} processors"
            );
        } else {
            self.row_at_least("filtered: one stream / direct", STREAM_MIN, ratio, " ×");
        }
        let memory = field(&status, "VmRSS:") as f64 / 1024.0;
        self.row(
            &format!("filtered: memory with {MANY} connections"),
            MANY_MAX,
            memory,
            " MB",
        );
        self.row(
            "filtered: wake-ups of an idle filter",
            0.0,
            woken as f64,
            "",
        );
        Ok(())
    }

    /// What of the throughput of TLS is left where a credential is exchanged.
    fn exchanged(&mut self, here: &Here) -> anyhow::Result<()> {
        // Beside the project, for what the jail can write is not trusted.
        let beside = self
            .project
            .path()
            .parent()
            .context("the project has no parent")?;
        let place = tempfile::Builder::new()
            .prefix("secured")
            .tempdir_in(beside)?;
        let at = place.path().to_owned();
        std::fs::create_dir(at.join("agent-sandbox"))?;
        let mut openssl = Command::new("sh");
        openssl.args(["-c", CERTIFICATES, &here.host]);
        let made = openssl.current_dir(&at).stderr(Stdio::null()).status()?;
        if !made.success() {
            println!("not checked: an exchange of credentials: no openssl that makes certificates");
            return Ok(());
        }
        let mut server = Command::new("python3");
        server.args(["-c", SECURED, &(STREAM / 4).to_string()]);
        let child = server.arg(&at).stdout(Stdio::piped()).spawn();
        let mut server = Ended(child.context("cannot start python3")?);
        let mut port = String::new();
        let said = server.0.stdout.as_mut().context("no output")?;
        BufReader::new(said).read_line(&mut port)?;
        let (host, port) = (&here.host, port.trim());
        let policy = format!(
            "[network]\nmode = \"filtered\"\nprivate = [\"{host}:{port}\"]\n[[credential]]\nname = \"bench\"\n\
             hosts = [\"{host}:{port}\"]\nenv = \"BENCH_TOKEN\"\nfrom = \"env:BENCH_REAL\"\n"
        );
        std::fs::write(at.join("agent-sandbox/config.toml"), policy)?;
        let url = format!("https://{host}:{port}/");
        let ask = |launcher: Option<&PathBuf>| {
            let mut command = Command::new(launcher.map_or(OsStr::new("env"), |it| it.as_os_str()));
            if launcher.is_some() {
                command.args(["-q", "--"]);
            }
            command.args(["bash", "-c", ASK, &url]);
            command.env("XDG_CONFIG_HOME", &at);
            for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE"] {
                command.env(name, at.join("ca.pem"));
            }
            let names = ["BENCH_TOKEN", "BENCH_REAL"];
            command.env(names[usize::from(launcher.is_some())], "the-real-value");
            figure(command)
        };
        let (mut plain, mut through) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            plain.push(ask(None)?);
            through.push(ask(Some(&self.binary))?);
        }
        let ratio = median(&mut through) / median(&mut plain);
        self.row_at_least(
            "filtered: TLS with a credential / direct",
            EXCHANGED_MIN,
            ratio,
            " ×",
        );
        Ok(())
    }

    /// What it adds to a launch.
    fn filtered_launch(&mut self) -> anyhow::Result<()> {
        let (mut open, mut filtered) = (Vec::new(), Vec::new());
        for run in 0..WARM_UP + RUNS {
            let launch = |mode: &str| {
                let mode = format!("network.mode={mode}");
                time(Command::new(&self.binary).args(["-q", "--set", &mode, "true"]))
            };
            let (a, b) = (launch("open")?, launch("filtered")?);
            if run >= WARM_UP {
                open.push(a);
                filtered.push(b);
            }
        }
        let added = median(&mut filtered) - median(&mut open);
        self.row("filtered: added to a launch", LAUNCH_MAX, added, " ms");
        Ok(())
    }
}
