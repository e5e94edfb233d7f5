//! stub: to be written
use crate::{Batch, Error, Key, RegionSpec, host::Region};
use std::time::Duration;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkId(u64);
#[derive(Debug)]
pub struct SimHost;
impl SimHost {
    pub(crate) fn offer(&self, _s: &RegionSpec<'_>, _i: impl FnOnce(&mut [u64])) -> Result<Region, Error> {
        unreachable!()
    }
}
#[derive(Debug)]
pub(crate) struct SimLink;
impl SimLink {
    pub(crate) fn connect(_k: &Key) -> Result<Self, Error> {
        unreachable!()
    }
    pub(crate) fn post(&mut self, _b: &mut Batch, _i: usize) {}
}
pub(crate) fn complete<'a>(_l: impl Iterator<Item = &'a mut SimLink>, _b: &mut Batch, _t: Duration) {}
