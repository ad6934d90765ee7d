//! The terminal while `umbo top` has it: another page of the screen, no cursor, keys at once and
//! unseen. Dropping it gives everything back, also on a panic.

use std::io::{self, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::draw::Size;
use crate::failure::Failure;

/// Another page, and no cursor.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// The page before, with its cursor.
const GIVE_BACK: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// A terminal that does not say how large it is.
const USUAL: Size = Size {
    columns: 80,
    lines: 24,
};

/// The terminal, taken.
#[derive(Debug)]
pub(super) struct Screen {
    /// How keys were read before; none where stdin is no terminal.
    before: Option<Termios>,
    out: io::Stdout,
    quit: mpsc::Receiver<()>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin()).ok();
        let (quit, quits) = mpsc::channel(1);
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Ctrl-C stays a signal.
            modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
            // Ends with the process: a read of a terminal cannot be given up.
            std::thread::spawn(move || wait_for_q(&quit));
        }
        let mut screen = Self {
            before,
            out: io::stdout(),
            quit: quits,
        };
        screen.write(TAKE)?;
        Ok(screen)
    }

    /// Waits until somebody presses `q`; for ever where there are no keys.
    pub(super) async fn quit(&mut self) {
        if self.quit.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the size of the terminal at this moment.
    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(&self.out) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                columns: usize::from(size.ws_col),
                lines: usize::from(size.ws_row),
            },
            _ => USUAL,
        }
    }

    /// Shows lines in the place of those before.
    pub(super) fn show(&mut self, lines: &[String]) -> Result<(), Failure> {
        // Each line clears what is left of its old one, the last all below it.
        let text = lines.join("\x1b[K\r\n");
        let frame = format!("\x1b[H{text}\x1b[K\x1b[J");
        self.write(frame.as_bytes()).map_err(Failure::from_output)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Where the terminal is gone there is nothing to give back.
        let _ = self.write(GIVE_BACK);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn wait_for_q(quit: &mpsc::Sender<()>) {
    let mut stdin = io::stdin().lock();
    let mut key = [0];
    while let Ok(1) = stdin.read(&mut key) {
        if matches!(key[0], b'q' | b'Q') {
            // Nobody waits any more where the program is ending.
            let _ = quit.blocking_send(());
            return;
        }
    }
}
