//! Marked points of the code at which a simulation may cause a rare event on purpose, after `FoundationDB`'s
//! `BUGGIFY`.
//!
//! `buggify!("name")` is `false` in every build but a simulation's (feature `simulation`), and there until
//! `on_this_thread`, which that feature brings, sets a decision. A point guards an event that the code must survive
//! anyway: a failure of the next step, a wait, a smaller batch.

/// Returns whether the simulation causes a rare event at this point. Always `false` outside a simulation.
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        $crate::buggify::is_hit($name)
    };
}

/// The decision of a simulation at each marked point, by the point's name.
#[cfg(feature = "simulation")]
pub type Decide = Box<dyn FnMut(&'static str) -> bool>;

#[cfg(feature = "simulation")]
thread_local! {
    static DECIDE: std::cell::RefCell<Option<Decide>> = const { std::cell::RefCell::new(None) };
}

/// Sets the decision for marked points on this thread; `None` makes all points `false`.
#[cfg(feature = "simulation")]
pub fn on_this_thread(decide: Option<Decide>) {
    DECIDE.set(decide);
}

/// Returns the decision of the simulation; called by [`crate::buggify!`].
#[cfg(feature = "simulation")]
pub fn is_hit(name: &'static str) -> bool {
    DECIDE.with_borrow_mut(|decide| decide.as_mut().is_some_and(|decide| decide(name)))
}

/// Returns `false`; called by [`crate::buggify!`].
#[cfg(not(feature = "simulation"))]
#[inline]
pub const fn is_hit(_name: &'static str) -> bool {
    false
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    #[test]
    fn a_simulation_decides_and_without_one_nothing_happens() {
        assert!(!crate::buggify!("a"));
        super::on_this_thread(Some(Box::new(|name| name == "a")));
        assert!(crate::buggify!("a") && !crate::buggify!("b"));
        super::on_this_thread(None);
        assert!(!crate::buggify!("a"));
    }
}
