//! The open connections, their addresses, and how one of them is chosen to give way to a new one.
//!
//! Owns the table of the open connections of one listener. Only a connection without a request gives way. The order is:
//! connections that had no request in their whole first second, the oldest first; then the used connection with the
//! oldest last request; then a connection that has just come. Time is counted in ticks of a second, so that a request
//! records it with one store and reads no clock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::connection::{ConnectionActivity, ConnectionUse, IdleSince, Order};

/// Of the connections that never had a request this part gives way at once, so that a new connection rarely needs a
/// search through all of them.
const SILENT_PART: usize = 64;

/// The open connections of a listener.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    next_id: u64,
    connections: HashMap<u64, AdmittedConnection>,
    /// Number of connections of each address that has any.
    by_address: HashMap<IpAddr, usize>,
    pub(super) aborted: usize,
}

#[derive(Debug)]
struct AdmittedConnection {
    signals: Arc<ConnectionActivity>,
    address: IpAddr,
}

impl OpenConnections {
    /// Enters a connection from `address`, a [`network`]. Returns its number.
    pub(super) fn enter(&mut self, signals: Arc<ConnectionActivity>, address: IpAddr) -> u64 {
        self.next_id += 1;
        *self.by_address.entry(address).or_default() += 1;
        let connection = AdmittedConnection { signals, address };
        self.connections.insert(self.next_id, connection);
        self.next_id
    }

    /// Removes a connection.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(AdmittedConnection { address, .. }) = self.connections.remove(&id) else {
            return;
        };
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// Returns how many connections an address has.
    pub(super) fn count_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// Gives an order to all connections; returns how many there are.
    pub(super) fn give_all(&self, order: Order) -> usize {
        for connection in self.connections.values() {
            connection.signals.give(order);
        }
        self.connections.len()
    }

    /// Makes room for a connection: tells the connections with the longest idle time to give way, of one address or of
    /// all. Returns how many were told.
    pub(super) fn make_room(&self, address: Option<IpAddr>, tick: u32) -> usize {
        let idle = |(&id, connection): (&u64, &AdmittedConnection)| {
            let is_meant = address.is_none_or(|address| address == connection.address);
            let since = is_meant.then(|| connection.signals.idle_since(tick))?;
            Some((since?, id))
        };
        let mut idle: Vec<(IdleSince, u64)> = self.connections.iter().filter_map(idle).collect();
        if idle.is_empty() {
            return 0;
        }
        let part = match address {
            Some(_) => 1,
            None => (self.connections.len() / SILENT_PART).clamp(1, idle.len()),
        };
        // Of two with the same time the older one has the lower number.
        idle.select_nth_unstable(part - 1);
        idle.truncate(part);
        idle.sort_unstable();
        let unused = idle
            .iter()
            .take_while(|(since, _)| since.usage != ConnectionUse::Used);
        let told = &idle[..unused.count().max(1)];
        for (_, id) in told {
            self.connections[id].signals.give_way();
        }
        told.len()
    }
}

/// Returns the address under which connections are counted: of IPv6 the network of 64 bits, because one client has all
/// of it.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(open: &mut OpenConnections, tick: u32, address: [u8; 4]) -> Arc<ConnectionActivity> {
        let signals = Arc::new(ConnectionActivity::new(tick));
        open.enter(signals.clone(), address.into());
        signals
    }

    fn told(all: &[&Arc<ConnectionActivity>]) -> Vec<bool> {
        let is_told = |signals: &&Arc<ConnectionActivity>| signals.order() == Order::GiveWay;
        all.iter().map(is_told).collect()
    }

    #[test]
    fn the_silent_give_way_before_the_used_and_the_busy_never() {
        let mut open = OpenConnections::default();
        let used = enter(&mut open, 1, [10, 0, 0, 1]);
        let busy = enter(&mut open, 1, [10, 0, 0, 1]);
        let silent = enter(&mut open, 5, [10, 0, 0, 1]);
        let all = [&used, &busy, &silent];
        for signals in [&used, &busy] {
            signals.open_exchange(2);
        }
        used.set_waiting(false);
        used.close_exchange();
        assert_eq!(open.make_room(None, 7), 1);
        assert_eq!(told(&all), [false, false, true]);
        assert_eq!(open.make_room(None, 7), 1);
        assert_eq!(told(&all), [true, false, true]);
        assert_eq!(open.make_room(None, 7), 0);
    }

    #[test]
    fn of_two_used_ones_the_one_used_last_stays() {
        let mut open = OpenConnections::default();
        let all = [7, 6, 8].map(|tick| {
            let signals = enter(&mut open, 1, [10, 0, 0, 1]);
            signals.open_exchange(tick);
            signals.set_waiting(false);
            signals.close_exchange();
            signals
        });
        assert_eq!(open.make_room(None, 9), 1);
        assert_eq!(told(&all.each_ref()), [false, true, false]);
    }

    #[test]
    fn one_that_has_just_come_gives_way_after_the_used_ones() {
        let mut open = OpenConnections::default();
        let used = enter(&mut open, 1, [10, 0, 0, 1]);
        used.open_exchange(9);
        used.set_waiting(false);
        used.close_exchange();
        let new = enter(&mut open, 8, [10, 0, 0, 1]);
        assert_eq!(open.make_room(None, 9), 1);
        assert_eq!(told(&[&used, &new]), [true, false]);
        assert_eq!(open.make_room(None, 9), 1);
        assert_eq!(told(&[&used, &new]), [true, true]);
    }

    #[test]
    fn many_silent_ones_give_way_together_and_the_newest_stay() {
        let mut open = OpenConnections::default();
        let all: Vec<_> = (0..640)
            .map(|_| enter(&mut open, 1, [10, 0, 0, 1]))
            .collect();
        assert_eq!(open.make_room(None, 1), 10);
        let refs: Vec<_> = all.iter().collect();
        let told = told(&refs);
        assert!(told[..10].iter().all(|told| *told) && !told[10..].contains(&true));
    }

    #[test]
    fn an_address_makes_room_among_its_own() {
        let mut open = OpenConnections::default();
        let other = enter(&mut open, 1, [10, 0, 0, 1]);
        let own = enter(&mut open, 9, [10, 0, 0, 2]);
        assert_eq!(open.make_room(Some([10, 0, 0, 2].into()), 9), 1);
        assert_eq!(told(&[&other, &own]), [false, true]);
        assert_eq!(open.count_of([10, 0, 0, 2].into()), 1);
        open.leave(2);
        assert_eq!(open.count_of([10, 0, 0, 2].into()), 0);
        assert_eq!(open.give_all(Order::Drain), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
