//! Network namespaces: the internet, the host with the proxy, and the place, which has nothing but loopback.
//!
//! ```text
//! internet                          host (this process)              place
//! 93.184.216.34, 10.0.0.5, … ─veth─ 93.184.0.1, 127.0.0.1 ─ socket ─ 127.0.0.1:3128
//! ```
//!
//! The addresses of the internet are only in these namespaces, which have no way to the real one.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use tokio::net::{TcpListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

/// Set in the test that was started again inside.
const INSIDE: &str = "STEAD_EGRESS_INSIDE";

/// Where commands of the place find the proxy.
pub const FORWARDER: &str = "127.0.0.1:3128";

/// The host's side of the cable, and addresses of the internet.
pub const HOST: &str = "93.184.0.1";
pub const NAME_SERVER: &str = "93.184.0.53";
pub const SERVER_V6: &str = "2606:2800::34";
pub const PRIVATE: &str = "10.0.0.5";
pub const METADATA: &str = "169.254.169.254";

/// Whether this is the inside. If not, the test was run there, or the skip was said.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let Some(unshare) = unshare() else {
        stead_testkit::skip(test, "this machine cannot make network and mount namespaces");
        return false;
    };
    if !["ip", "nsenter"].iter().all(|program| runs(&[program, "-V"])) {
        stead_testkit::skip(test, "there is no ip or nsenter here");
        return false;
    }
    let mut command = Command::new("unshare");
    command
        .args(unshare)
        .arg("--")
        .arg(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "inside:\n{text}");
    assert!(text.contains("1 passed"), "it did not run inside:\n{text}");
    false
}

/// Root needs no user namespace; others may be allowed to make one.
fn unshare() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [
        &["--net", "--mount"],
        &["--user", "--map-root-user", "--net", "--mount"],
    ];
    ways.into_iter()
        .find(|way| runs(&[&["unshare"], *way, &["--", "true"]].concat()))
}

fn runs(argv: &[&str]) -> bool {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a line of words, which has to succeed.
fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}");
}

/// A network namespace that lives as long as this.
pub struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        // It ends with its input, also when this process is killed.
        command.args(["--net", "--", "sh", "-c", "echo ready; exec cat"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let namespace = Self(child);
        namespace.run("ip link set lo up");
        namespace
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    fn run(&self, line: &str) {
        run(&format!("nsenter --net={} {line}", self.path()));
    }

    /// A command in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path()))
            .arg("--")
            .arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// A thread in it, with a runtime of its own.
    pub fn spawn<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Runtime) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let file = std::fs::File::open(self.path()).unwrap();
        std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(file.as_fd(), None).unwrap();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            what(&runtime)
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Makes the internet, and lays the cable to where this runs. Names are resolved by [`NAME_SERVER`] from now on;
/// `folder` is for the file that says so.
pub fn internet(folder: &Path) -> Namespace {
    let internet = Namespace::new();
    run("ip link set lo up");
    run(&format!(
        "ip link add cable type veth peer name cable netns {}",
        internet.0.id()
    ));
    run(&format!("ip addr add {HOST}/16 dev cable"));
    run("ip -6 addr add 2606:2800::1/32 dev cable nodad");
    run("ip link set cable up");
    for address in [
        "93.184.216.34/16",
        "93.184.0.53/16",
        "10.0.0.5/32",
        "169.254.169.254/32",
    ] {
        internet.run(&format!("ip addr add {address} dev cable"));
    }
    internet.run(&format!("ip -6 addr add {SERVER_V6}/32 dev cable nodad"));
    internet.run("ip link set cable up");
    // The host can reach what the place must not.
    for address in [PRIVATE, METADATA] {
        run(&format!("ip route add {address}/32 dev cable src {HOST}"));
    }
    for (file, text) in [
        (
            "resolv.conf",
            format!("search wild.example\nnameserver {NAME_SERVER}\n"),
        ),
        ("nsswitch.conf", "hosts: files dns\n".to_owned()),
    ] {
        let ours = folder.join(file);
        std::fs::write(&ours, text).unwrap();
        run(&format!("mount --bind {} /etc/{file}", ours.display()));
    }
    internet
}

/// Makes a place: loopback, and on it what copies each connection to the socket.
pub fn place(socket: &Path) -> Namespace {
    let place = Namespace::new();
    let socket = socket.to_owned();
    let (tell, ready) = std::sync::mpsc::channel();
    place.spawn(move |runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind(FORWARDER).await.unwrap();
            tell.send(()).unwrap();
            while let Ok((mut inside, _)) = listener.accept().await {
                let mut outside = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inside, &mut outside).await });
            }
        });
    });
    ready.recv().unwrap();
    place
}
