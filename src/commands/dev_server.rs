//! `tenure dev-server`: the embedded Lease API in the foreground.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use super::{block_on, interrupts::Interrupts};
use crate::{
    apiserver::{Server, StartError},
    cli::DevServer,
    console::{complain, say},
    exit,
    words::one_line,
};

/// Serves until SIGINT or SIGTERM, and returns the exit code.
pub(super) fn run(about: &DevServer) -> u8 {
    match serve(about) {
        Ok(()) => 0,
        Err(failed) => {
            complain(&one_line(&failed));
            failed.exit_code()
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the API server cannot start")]
    Start(#[from] StartError),
    #[error("cannot write the kubeconfig to {}", .file.display())]
    Kubeconfig { file: PathBuf, source: io::Error },
    #[error("{} holds something else than a kubeconfig of this server, and is left as it is: name another file", .0.display())]
    Taken(PathBuf),
    #[error("{0}")]
    System(&'static str, #[source] io::Error),
}

impl Failed {
    /// 78 if the user named something that cannot be used, else 70.
    const fn exit_code(&self) -> u8 {
        match self {
            Self::Start(StartError::Listen { .. }) | Self::Kubeconfig { .. } | Self::Taken(_) => exit::INVALID,
            Self::Start(_) | Self::System(..) => exit::INTERNAL,
        }
    }
}

fn serve(about: &DevServer) -> Result<(), Failed> {
    let address = about.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Server::start(address)?;
    let kubeconfig = server.kubeconfig(server.address());
    if let Some(file) = about.kubeconfig_out.as_ref().filter(|file| is_taken(file, &kubeconfig)) {
        return Err(Failed::Taken(file.clone()));
    }
    let unwritten = |error| Failed::System("cannot write to standard output", error);
    block_on(async {
        let caught = Interrupts::catch();
        let mut interrupts = caught.map_err(|error| Failed::System("cannot wait for signals", error))?;
        match &about.kubeconfig_out {
            Some(file) => {
                write_private(file, &kubeconfig).map_err(|source| Failed::Kubeconfig { file: file.clone(), source })?;
                say(&usage(server.address(), &file.display().to_string())).map_err(unwritten)?;
            }
            None => {
                say(&kubeconfig).map_err(unwritten)?;
                complain(&format!("listens on https://{}; what stands above is its kubeconfig", server.address()));
            }
        }
        interrupts.next().await;
        Ok(())
    })
    .map_err(|error| Failed::System("cannot start a runtime", error))?
}

fn usage(address: SocketAddr, kubeconfig: &str) -> String {
    format!(
        "Leases are served on https://{address}; Ctrl-C ends it and forgets them.

  KUBECONFIG={kubeconfig} tenure --lease demo -- sh -c 'echo leading; exec sleep infinity'
  KUBECONFIG={kubeconfig} kubectl get leases --watch

The first leader of a new Lease waits out its duration; each one after it starts at once.
"
    )
}

/// Returns true if writing would lose the file's content, such as all contexts in ~/.kube/config: the file does not end as `ours`
/// does.
fn is_taken(file: &Path, ours: &str) -> bool {
    let is_file = fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
    let last = |text: &str| text.lines().last().map(str::to_owned);
    is_file && fs::read(file).is_ok_and(|text| !text.is_empty() && last(&String::from_utf8_lossy(&text)) != last(ours))
}

/// For the owner only: a kubeconfig contains a token.
pub(super) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    if file.metadata()?.is_file() {
        // A file that already existed has kept its mode.
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    file.write_all(text.as_bytes())
}
