//! nginx under config/examples/nginx.yaml.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use nix::sys::signal::Signal;
use support::{Stage, spec::released};

use super::{
    Debian,
    change::{Change, Client, Moment},
    listens, until,
};

pub(super) async fn nginx_reloads_on_hup_and_finishes_its_requests_in_a_hand_over(stage: Stage) {
    let Some(debian) = Debian::package("nginx") else { return };
    stage.lease.create(released()).await;
    let address = stage.free_address().0;
    let prepare = async |name: &str| {
        let directory = stage.directory().join(format!("nginx-{name}"));
        fs::create_dir_all(&directory).expect("a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("ours");
        write_page(&directory, address, "first");
        let after = ["-p", &directory.to_string_lossy(), "-c", "nginx.conf"].map(str::to_owned);
        debian.prepare(&stage, name, "nginx", &[], &after).await
    };
    let a = prepare("a").await.start();
    until("nginx serves", async || listens(address)).await;
    assert!(stage.page(address, "/").await.ends_with("first"));
    let b = prepare("b").await.start();
    b.said("another replica holds the Lease").await;

    write_page(&stage.directory().join("nginx-a"), address, "second");
    a.signal(Signal::SIGHUP).await;
    until("the reload", async || stage.page(address, "/").await.ends_with("second")).await;

    // As long as this takes, nginx is not done.
    let mut slow = TcpStream::connect(address).expect("nginx listens");
    slow.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("a request");
    let mut first = String::new();
    let mut slow = BufReader::new(slow);
    slow.read_line(&mut first).expect("an answer begins");
    let client = Client::start(move |_| listens(address));
    let since = Moment::now();
    a.signal(Signal::SIGTERM).await;
    let rest = tokio::task::spawn_blocking(move || {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut slow, &mut rest).map(|_| rest)
    });
    let rest = rest.await.expect("no panic").expect("the whole answer");
    assert!(rest.len() >= 60_000, "the answer was cut off after {} bytes", rest.len());
    assert_eq!(a.exit().await, 0);
    until("the other serves", async || listens(address) && stage.page(address, "/").await.ends_with("first")).await;
    debian.tell("nginx, hand-over with a slow request under way", Change::HandOver, since, &client.end().1).await;
    assert_eq!(b.stop().await, 0);
}

fn write_page(directory: &Path, address: SocketAddr, text: &str) {
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    let page = format!(
        "pid nginx.pid; error_log stderr; events {{}} http {{ {} access_log off; server {{ listen {address} reuseport; \
         location / {{ return 200 '{text}'; }} location /slow {{ limit_rate 30k; root .; try_files /slow =404; }} }} }}",
        paths.join(" ")
    );
    // With reuseport nothing but the Lease keeps a second one from serving.
    fs::write(directory.join("nginx.conf"), page.replace("root .", &format!("root {}", directory.display()))).expect("a file");
    fs::write(directory.join("slow"), vec![b'x'; 60_000]).expect("a file");
}
