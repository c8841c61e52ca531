//! `tenure dev-server`: the embedded Lease API in the foreground.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use super::{Ended, block_on, interrupts::Interrupts};
use crate::{
    apiserver::{Server, StartError},
    cli::DevServer,
    console::{complain, refuse, say},
    exit,
    words::one_line,
};

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(about: &DevServer) -> Ended {
    let address = about.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Server::start(address).map_err(|error| {
        let code = if let StartError::Listen { .. } = error { exit::INVALID } else { exit::INTERNAL };
        refuse(code, &format!("the API server cannot start: {}", one_line(&error)))
    })?;
    let kubeconfig = server.kubeconfig(server.address());
    if let Some(file) = about.kubeconfig_out.as_ref().filter(|file| is_taken(file, &kubeconfig)) {
        let file = file.display();
        let why =
            format!("{file} holds something else than a kubeconfig of this server, and is left as it is: name another file");
        return Err(refuse(exit::INVALID, &why));
    }
    let failed = |what: &str, error: io::Error| refuse(exit::INTERNAL, &format!("{what}: {error}"));
    let unwritten = |error| failed("cannot write to standard output", error);
    block_on(async {
        let mut interrupts = Interrupts::catch().map_err(|error| failed("cannot wait for signals", error))?;
        match &about.kubeconfig_out {
            Some(file) => {
                let refused = |error| format!("cannot write the kubeconfig to {}: {error}", file.display());
                write_private(file, &kubeconfig).map_err(|error| refuse(exit::INVALID, &refused(error)))?;
                say(&usage(server.address(), &file.display().to_string())).map_err(unwritten)?;
            }
            None => {
                say(&kubeconfig).map_err(unwritten)?;
                complain(&format!("listens on https://{}; what stands above is its kubeconfig", server.address()));
            }
        }
        interrupts.next().await;
        Ok(0)
    })
    .unwrap_or_else(|error| Err(failed("cannot start a runtime", error)))
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
