//! Programs read their term (docs/term.md), with whole replicas: the examples in config/examples, and a replica that is cut off.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use support::{
    Case, Replica, Stage, cases, found, not_run,
    spec::{CALM, calm, released},
};
use tenure::{clock, time::Instant};

use crate::TENURE;

/// Where the examples are.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/examples");

pub(crate) fn all() -> Vec<Case> {
    cases![
        the_examples_say_what_init_knows,
        a_shell_gets_the_token_while_the_lease_is_held,
        a_replica_that_is_cut_off_holds_no_longer_than_h,
    ]
}

/// The language of an example, its file, and how that becomes a program, if it is none yet.
const EXAMPLES: [(&str, &str, &[&str]); 4] = [
    ("c", "term.c", &["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "example", "term.c"]),
    ("go", "term.go", &["go", "build", "-o", "example", "term.go"]),
    ("python", "term.py", &[]),
    ("rust", "term.rs", &["rustc", "--edition=2024", "-o", "example", "term.rs"]),
];

/// The example in this language, as a command; none, and said so, where it cannot be built.
fn example(language: &str, file: &str, build: &[&str], directory: &Path) -> Option<String> {
    fs::create_dir(directory).expect("a new directory");
    fs::copy(Path::new(PROGRAMS).join(file), directory.join(file)).expect("an example");
    let tool = build.first().unwrap_or(&"python3");
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", tool]).stdout(Stdio::null()).status();
    if !found.expect("a shell").success() {
        not_run(&format!("the example in {language}"), format!("there is no {tool}"));
        return None;
    }
    let Some((compiler, arguments)) = build.split_first() else {
        return Some(format!("python3 {}", directory.join(file).display()));
    };
    let output =
        Command::new(compiler).args(arguments).current_dir(directory).env("GO111MODULE", "off").output().expect("a compiler");
    assert!(output.status.success(), "{language}: {}", String::from_utf8_lossy(&output.stderr));
    Some(directory.join("example").display().to_string())
}

/// The file to which a replica's workload writes.
struct Said(PathBuf);

impl Said {
    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits for such a line.
    async fn line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        found(what, async || self.lines().into_iter().find(|line| is_it(line))).await
    }
}

/// Leads, with this script as its workload.
async fn run(stage: &Stage, script: &str, said: &Said) -> Replica {
    let mut prepared = calm(stage.prepare("me").await).set("workload.stop.grace", "20s");
    let script = format!("exec >{} 2>&1\n{script}", said.0.display());
    prepared.launch.workload = ["sh", "-c", &script].map(str::to_owned).to_vec();
    stage.lease.create(released()).await;
    prepared.start()
}

async fn the_examples_say_what_init_knows(stage: Stage) {
    for (language, file, build) in EXAMPLES {
        let stage = stage.beside(language).await;
        let Some(example) = example(language, file, build, &stage.directory().join("example")) else { continue };
        let said = Said(stage.directory().join("said"));
        // The shell takes the stop signal, and the example does not notice it.
        let script = format!("trap : TERM; echo token $TENURE_FENCING_TOKEN; {example} & while :; do wait; done");
        let _me = run(&stage, &script, &said).await;
        let token = said.line("a start", |line| line.starts_with("token ")).await;
        said.line(&format!("{language} writes"), |line| line == format!("writes with {token}")).await;
        assert!(!said.lines().contains(&"waits".to_owned()), "{language}: {:?}", said.lines());

        stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("")).await;
        said.line(&format!("{language} waits"), |line| line == "waits").await;

        let lines = said.lines();
        let last = lines.iter().rposition(|line| line.starts_with("writes")).expect("it wrote");
        assert!(lines.get(last + 1).is_some_and(|next| next == "waits"), "{language}: {lines:?}");
    }
}

async fn a_shell_gets_the_token_while_the_lease_is_held(stage: Stage) {
    let said = Said(stage.directory().join("said"));
    let script = format!(
        "trap '' TERM; echo token $TENURE_FENCING_TOKEN
        while :; do token=$('{TENURE}' held --token); echo held $? \"$token\"; done"
    );
    let _me = run(&stage, &script, &said).await;
    let token = said.line("a start", |line| line.starts_with("token ")).await.replace("token ", "");
    said.line("the token", |line| line == format!("held 0 {token}")).await;

    stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("")).await;

    said.line("no token", |line| line == "held 1 ").await;
}

/// The clock when `held` was asked, its answer, the clock after that, and the answer for 3 s; and which S and H the page had
/// before.
const WATCHES: &str = r#"
trap '' TERM
boot() { read -r up _ </proc/uptime; echo "$up"; }
while :; do
    page=$(od -A n -t u8 -j 24 -N 16 /proc/self/fd/$TENURE_TERM_FD)
    before=$(boot); $TENURE held; answer=$?; after=$(boot); $TENURE held --for 3s
    echo $before $answer $after $? $page
done"#;

/// How far the two clocks may have parted since the page was written.
const PARTED: Duration = Duration::from_millis(20);

/// The instant at which CLOCK_BOOTTIME showed this.
fn shown(boottime: Duration) -> Instant {
    let now = clock::boottime();
    (clock::boot() + boottime.saturating_sub(now)).before(now.saturating_sub(boottime))
}

/// Parses a time of /proc/uptime, which is CLOCK_BOOTTIME, rounded down to 10 ms.
fn instant(seconds: &str) -> Instant {
    shown(Duration::from_secs_f64(seconds.parse().expect("seconds")))
}

async fn a_replica_that_is_cut_off_holds_no_longer_than_h(stage: Stage) {
    let said = Said(stage.directory().join("said"));
    let me = run(&stage, &WATCHES.replace("$TENURE ", &format!("'{TENURE}' ")), &said).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    // By the answers: now, and for 3 s.
    let is = |line: &str, answers: &str| line.split(' ').skip(1).step_by(2).take(2).eq(answers.split(' '));
    said.line("it is held", |line| is(line, "0 0")).await;

    me.proxy.cut();
    let cut = clock::boot();

    said.line("it is held, but not for 3 s", |line| is(line, "0 1")).await;
    let sent = me.proxy.log.all().into_iter().rfind(|e| e.request.is_held() && e.succeeded() && e.answered_at() < cut);
    let sent = sent.expect("a confirmed write").request.at;
    let (lines, mut held) = (said.lines(), 0);
    for line in &lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let &[before, answer, after, longer, soft, hard] = &words[..] else { continue };
        assert!(!line.contains("tenure:"), "{line}");
        let (soft, hard) = (soft.parse().expect("S"), hard.parse().expect("H"));
        let [soft, hard] = [soft, hard].map(|nanos| shown(Duration::from_nanos(nanos)));
        assert!(soft <= CALM.soft(sent) + PARTED && hard <= CALM.hard(sent) + PARTED, "{line}: counted from {sent:?}");
        match answer {
            // The write was on its way to the proxy for a while, so that H is a little earlier.
            "0" => assert!(instant(before) < CALM.hard(sent) + PARTED, "{line}: it is held at H"),
            answer => panic!("{answer} in {line}: it ends at H, with the workload"),
        }
        assert!(
            longer == "1" || longer == "0" && instant(after) + Duration::from_secs(3) < CALM.hard(sent) + PARTED,
            "{line}: not 3 s before H"
        );
        held += 1;
    }
    assert!(held > 1, "{lines:?}");
}
