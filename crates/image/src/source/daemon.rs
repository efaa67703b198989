//! Images of the local engine, which exports them as `docker save` does.

use super::archive::Archive;
use super::http::{Patience, unreachable};
use crate::error::PullError;
use crate::limits::Limits;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::unversioned::resolver::{ArrayVec, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// Where engines listen when `DOCKER_HOST` does not say.
const SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// An engine writes all layers into files of its own before it gives the first byte.
const ENGINE_SILENCE: Duration = Duration::from_secs(600);

/// The socket of the engine.
pub(crate) fn socket(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<PathBuf, PullError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(host) = set("DOCKER_HOST") {
        let text = host.to_string_lossy().into_owned();
        let path = text.strip_prefix("unix://").unwrap_or(&text);
        return match path.starts_with('/') {
            true => Ok(path.into()),
            false => Err(unreachable(
                &text,
                "its images",
                "only unix sockets are spoken to here; forward the socket",
            )),
        };
    }
    let mut sockets: Vec<PathBuf> = SOCKETS.map(PathBuf::from).to_vec();
    let runtime = set("XDG_RUNTIME_DIR").map(PathBuf::from);
    sockets.extend(
        runtime
            .iter()
            .flat_map(|dir| [dir.join("docker.sock"), dir.join("podman/podman.sock")]),
    );
    Ok(sockets
        .iter()
        .find(|path| path.exists())
        .unwrap_or(&sockets[0])
        .clone())
}

/// Exports an image of the engine into a file of ours.
pub(crate) fn export(
    socket: &Path,
    name: &str,
    patience: Patience,
    staging: &Path,
    limits: &Limits,
) -> Result<Archive, PullError> {
    let place = format!("the engine at {}", socket.display());
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(patience.connect))
        .timeout_per_read(Some(patience.silence.max(ENGINE_SILENCE)))
        .build();
    let agent = Agent::with_parts(config, Dial(Arc::from(socket)), Nowhere);
    let response = agent.get(format!("http://engine/images/{name}/get")).call();
    let response = response.map_err(|error| unreachable(&place, name, error))?;
    match response.status().as_u16() {
        200 => {}
        404 => {
            return Err(PullError::NotFound {
                place,
                what: format!("image {name}"),
            });
        }
        status => return Err(unreachable(&place, name, format!("the answer is {status}"))),
    }
    let reader = response.into_body().into_reader();
    Archive::spool(reader, Path::new(&place), None, staging, limits)
}

/// Connects to a socket, whatever the address says.
#[derive(Debug)]
struct Dial(Arc<Path>);

impl<In: Transport> Connector<In> for Dial {
    type Out = Stream;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<In>) -> Result<Option<Stream>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Stream { stream, buffers }))
    }
}

/// No name has to be looked up for it.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(&self, _: &ureq::http::Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses: ResolvedSocketAddrs = ArrayVec::from_fn(|_| ([0, 0, 0, 0], 0).into());
        addresses.push(([127, 0, 0, 1], 0).into());
        Ok(addresses)
    }
}

struct Stream {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

fn timed(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream
            .set_write_timeout(timeout.not_zero().map(|left| *left))?;
        let output = &self.buffers.output()[..amount];
        self.stream
            .write_all(output)
            .map_err(|error| timed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream
            .set_read_timeout(timeout.not_zero().map(|left| *left))?;
        let count = self
            .stream
            .read(self.buffers.input_append_buf())
            .map_err(|error| timed(error, timeout))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        // Each export has a connection of its own.
        false
    }
}
