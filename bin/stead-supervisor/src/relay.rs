//! Standard input and output as a connection to the supervisor beside us. This is how an engine on
//! another machine is reached: one `exec` of this, instead of one for each command.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Copies both ways until either side ends.
pub fn relay(socket: &Path) -> io::Result<()> {
    let inward = UnixStream::connect(socket)?;
    let mut outward = inward.try_clone()?;
    let copier = std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        // The end of our input is the end of the host; the supervisor sees it as such.
        let _ = io::copy(&mut stdin, &mut &inward);
        let _ = inward.shutdown(Shutdown::Both);
    });
    let mut stdout = io::stdout().lock();
    let mut buffer = [0; 64 * 1024];
    loop {
        match io::Read::read(&mut outward, &mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                io::Write::write_all(&mut stdout, &buffer[..count])?;
                io::Write::flush(&mut stdout)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // The thread may be stuck in a read that nothing will end; the end of the process ends it.
    drop(copier);
    Ok(())
}
