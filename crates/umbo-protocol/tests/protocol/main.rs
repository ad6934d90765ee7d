//! The protocol as its peers see it: messages survive a round trip, in the order of each partition and within
//! the windows; hostile bytes are refused; and frames of this version are kept as bytes.

mod copies;
mod forms;
mod golden;
mod hostile;
mod keyed;
mod peers;
mod round_trip;
mod sending;
mod uploads;
mod values;
mod versions;
