//! The view of a user of `umbo top`: the tab, its order and its filter, and the effect of keys on them. Knows no
//! terminal: a test presses keys and checks the view.

use clap::ValueEnum;

/// A tab: one subject on a separate screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Tab {
    /// A little of everything.
    Overview,
    /// Callers by request units.
    Callers,
    /// Keys that are hot, pinned or blocked.
    Hot,
    /// Shards: load and files.
    Shards,
    /// Policies: utilisation and rejections.
    Quotas,
    /// Shards: pressure and queues.
    Overload,
}

impl Tab {
    /// Returns the name of the tab.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Callers => "callers",
            Self::Hot => "hot keys",
            Self::Shards => "shards",
            Self::Quotas => "quotas",
            Self::Overload => "overload",
        }
    }

    fn moved(self, steps: usize) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|tab| *tab == self);
        all[(at.unwrap_or_default() + steps) % all.len()]
    }
}

/// A key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPress {
    /// A character.
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Left,
    Right,
}

impl KeyPress {
    /// Parses the bytes that a terminal sends at once. Returns `None` if they are not a key with a use here.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            b"\x1b" => Self::Escape,
            b"\x1b[C" | b"\x1bOC" => Self::Right,
            b"\x1b[D" | b"\x1bOD" | b"\x1b[Z" => Self::Left,
            b"\r" | b"\n" => Self::Enter,
            b"\t" => Self::Tab,
            b"\x7f" | b"\x08" => Self::Backspace,
            _ => {
                let first = std::str::from_utf8(bytes).ok()?.chars().next()?;
                return (!first.is_control()).then_some(Self::Char(first));
            }
        })
    }
}

/// The effect of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    /// To draw again.
    Redraw,
    /// To ask the next server.
    NextServer,
    /// To end.
    Quit,
    /// Nothing.
    Nothing,
}

/// The tab, its order and its filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableView {
    pub(super) tab: Tab,
    /// Column that the rows of the tab are sorted by; `None` for the default order of the tab.
    pub(super) sort: Option<usize>,
    /// Whether the smallest comes first.
    pub(super) is_ascending: bool,
    /// Only rows with this text in a cell are shown; upper and lower case are the same.
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
}

/// Longest filter, in characters.
const FILTER_LEN_MAX: usize = 60;

impl TableView {
    /// Begins with a tab.
    pub(super) const fn new(tab: Tab, filter: String) -> Self {
        Self {
            tab,
            sort: None,
            is_ascending: false,
            filter,
            is_typing: false,
        }
    }

    /// Changes the view by a key. `columns` is the number of columns of the tab.
    pub(super) fn press(&mut self, key: KeyPress, columns: usize) -> Pressed {
        if self.is_typing {
            return self.type_key(key);
        }
        match key {
            KeyPress::Char('q' | 'Q') => return Pressed::Quit,
            KeyPress::Char('d' | 'D') => return Pressed::NextServer,
            KeyPress::Char('/') => self.is_typing = true,
            KeyPress::Char('s') if columns > 0 => {
                self.sort = Some(self.sort.map_or(0, |at| (at + 1) % columns));
            }
            KeyPress::Char('S') if columns > 0 => {
                let at = self.sort.unwrap_or_default();
                self.sort = Some((at + columns - 1) % columns);
            }
            KeyPress::Char('r' | 'R') => self.is_ascending = !self.is_ascending,
            KeyPress::Char(digit @ '1'..='6') => {
                let at = digit as usize - '1' as usize;
                self.show(Tab::value_variants()[at]);
            }
            KeyPress::Tab | KeyPress::Right => self.show(self.tab.moved(1)),
            KeyPress::Left => self.show(self.tab.moved(Tab::value_variants().len() - 1)),
            KeyPress::Escape => self.filter.clear(),
            _ => return Pressed::Nothing,
        }
        Pressed::Redraw
    }

    fn show(&mut self, tab: Tab) {
        if self.tab != tab {
            (self.tab, self.sort, self.is_ascending) = (tab, None, false);
        }
    }

    fn type_key(&mut self, key: KeyPress) -> Pressed {
        match key {
            KeyPress::Enter | KeyPress::Tab => self.is_typing = false,
            KeyPress::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyPress::Backspace => {
                self.filter.pop();
            }
            KeyPress::Char(letter) if self.filter.chars().count() < FILTER_LEN_MAX => {
                self.filter.push(letter);
            }
            _ => return Pressed::Nothing,
        }
        Pressed::Redraw
    }

    /// Returns whether a row is shown.
    pub(super) fn passes(&self, cells: &[String]) -> bool {
        let wanted = self.filter.to_lowercase();
        cells
            .iter()
            .any(|cell| cell.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(view: &mut TableView, keys: &str) -> Vec<Pressed> {
        let keys = keys.chars().map(KeyPress::Char);
        keys.map(|key| view.press(key, 3)).collect()
    }

    #[test]
    fn keys_choose_tab_order_and_filter() {
        let mut view = TableView::new(Tab::Overview, String::new());
        pressed(&mut view, "2ss");
        assert_eq!((view.tab, view.sort), (Tab::Callers, Some(1)));
        pressed(&mut view, "SSr");
        assert_eq!((view.sort, view.is_ascending), (Some(2), true));
        view.press(KeyPress::Right, 3);
        assert_eq!(
            (view.tab, view.sort, view.is_ascending),
            (Tab::Hot, None, false)
        );
        for _ in 0..3 {
            view.press(KeyPress::Left, 3);
        }
        assert_eq!(view.tab, Tab::Overload);
        pressed(&mut view, "/qd2x");
        view.press(KeyPress::Backspace, 3);
        view.press(KeyPress::Enter, 3);
        assert_eq!((view.filter.as_str(), view.is_typing), ("qd2", false));
        assert!(view.passes(&["a".to_owned(), "xQD2y".to_owned()]));
        assert!(!view.passes(&["a".to_owned()]));
        view.press(KeyPress::Escape, 3);
        assert!(view.passes(&["a".to_owned()]));
        let last = pressed(&mut view, "d?q");
        assert_eq!(last, [Pressed::NextServer, Pressed::Nothing, Pressed::Quit]);
    }

    #[test]
    fn a_filter_that_is_given_up_is_empty_and_none_is_endless() {
        let mut view = TableView::new(Tab::Hot, String::new());
        pressed(&mut view, &format!("/{}", "é".repeat(500)));
        assert_eq!(view.filter.chars().count(), FILTER_LEN_MAX);
        view.press(KeyPress::Escape, 3);
        assert_eq!((view.filter.as_str(), view.is_typing), ("", false));
    }

    #[test]
    fn what_terminals_send_is_read_and_the_rest_ignored() {
        for (bytes, key) in [
            (&b"q"[..], Some(KeyPress::Char('q'))),
            (b"\x1b", Some(KeyPress::Escape)),
            (b"\x1b[C", Some(KeyPress::Right)),
            (b"\x1b[Z", Some(KeyPress::Left)),
            (b"\t", Some(KeyPress::Tab)),
            ("é".as_bytes(), Some(KeyPress::Char('é'))),
            (b"\x1b[15~", None),
            (b"\x01", None),
            (b"\xff", None),
            (b"", None),
        ] {
            assert_eq!(KeyPress::parse(bytes), key, "{bytes:?}");
        }
    }
}
