//! The admin endpoint of a cache.

use std::sync::Arc;
use std::time::Duration;

use sidelong_cache::Published;
use sidelong_edge::{CacheMetrics, ConfigState, Pages};

/// A cache whose figures are older does not serve: its thread publishes them about each 100 ms.
const STALE: Duration = Duration::from_secs(5);

/// The pages of a cache of this version whose thread publishes its figures there; with `config`, of a cluster.
pub(super) fn pages(version: &str, published: Arc<Published>, config: Option<Arc<ConfigState>>) -> Pages {
    let serves = {
        let published = Arc::clone(&published);
        move || published.age().is_some_and(|age| age <= STALE)
    };
    let read =
        move |name: &str| published.rows().find_map(|(known, number)| (known == name).then_some(number));
    let check = |serves: bool| if serves { Ok("ok\n") } else { Err("the cache's thread hangs\n") };
    let (health, ready) = (serves.clone(), serves.clone());
    let metrics = CacheMetrics::new(version, Box::new(serves), Box::new(read), config);
    Pages {
        metrics: Box::new(move || metrics.encode()),
        health: Box::new(move || check(health())),
        ready: Box::new(move || check(ready())),
        status: None,
    }
}
