//! The terminal while `umbo top` uses it: alternate screen, no cursor, unbuffered keys without echo. Dropping
//! it restores the terminal, also on a panic.

use std::io::{self, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::draw::ScreenSize;
use super::view::KeyPress;
use crate::cli_error::CliError;

/// Switches to the alternate screen and hides the cursor.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Shows the cursor and the previous screen.
const GIVE_BACK: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Size for a terminal that does not report its own.
const USUAL: ScreenSize = ScreenSize {
    columns: 80,
    lines: 24,
};

/// Most keys that wait to be acted on; the terminal holds the others.
const KEYS_MAX: usize = 16;
/// Longest sequence that a terminal sends for one key, in bytes.
const KEY_LEN_MAX: usize = 16;

/// The terminal in use.
#[derive(Debug)]
pub(super) struct Screen {
    /// The key mode before; `None` if stdin is not a terminal.
    before: Option<Termios>,
    out: io::Stdout,
    keys: mpsc::Receiver<KeyPress>,
}

impl Screen {
    /// Prepares the terminal.
    pub(super) fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin()).ok();
        let (keys, pressed) = mpsc::channel(KEYS_MAX);
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Ctrl-C still sends a signal.
            modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
            // Ends with the process: a read of a terminal cannot be cancelled.
            std::thread::spawn(move || read_keys(&keys));
        }
        let mut screen = Self {
            before,
            out: io::stdout(),
            keys: pressed,
        };
        screen.write(TAKE)?;
        Ok(screen)
    }

    /// Waits for a key; without limit if stdin is not a terminal.
    pub(super) async fn key(&mut self) -> KeyPress {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    /// Returns the current size of the terminal.
    pub(super) fn size(&self) -> ScreenSize {
        match tcgetwinsize(&self.out) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => ScreenSize {
                columns: usize::from(size.ws_col),
                lines: usize::from(size.ws_row),
            },
            _ => USUAL,
        }
    }

    /// Replaces the shown lines.
    pub(super) fn show(&mut self, lines: &[String]) -> Result<(), CliError> {
        // Each line clears the rest of its old content, the last one everything below.
        let text = lines.join("\x1b[K\r\n");
        let frame = format!("\x1b[H{text}\x1b[K\x1b[J");
        self.write(frame.as_bytes()).map_err(CliError::from_output)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone there is nothing to restore.
        let _ = self.write(GIVE_BACK);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Reads keys until the program ends.
fn read_keys(keys: &mpsc::Sender<KeyPress>) {
    let mut stdin = io::stdin().lock();
    let mut bytes = [0; KEY_LEN_MAX];
    while let Ok(len @ 1..) = stdin.read(&mut bytes) {
        // A sequence arrives at once; keys that were typed ahead come together too.
        let sent = &bytes[..len];
        let is_sequence = sent[0] == 0x1b || !sent.is_ascii();
        let pieces: Vec<&[u8]> = if is_sequence {
            vec![sent]
        } else {
            sent.chunks(1).collect()
        };
        for key in pieces.into_iter().filter_map(KeyPress::parse) {
            if keys.blocking_send(key).is_err() {
                return;
            }
        }
    }
}
