//! The lines that Envoy needs. It is controlled through memory, through a dynamic module.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sidelong_app::front::endpoints;
use sidelong_config::ServerAddress;

use super::{CONNECT_S, Pool};

/// A listener with a virtual host for each pool, and the pools' clusters, as YAML, controlled by the front of that prefix or by Envoy
/// itself; if the front adds servers, they have their endpoints from its files. `admits` if a site has a target, so that clients may be
/// rejected.
pub(crate) fn lines(
    pools: &[Pool<'_>],
    controlled: Option<(&str, bool)>,
    admits: bool,
    listen: Option<SocketAddr>,
) -> String {
    let (address, port) = match listen {
        Some(listen) => (format!("{:?}", listen.ip().to_string()), listen.port()),
        None => ("0.0.0.0".to_owned(), 80),
    };
    let admits = controlled.map(|(prefix, _)| prefix).filter(|_| admits);
    let admission = if admits.is_some() { ADMISSION } else { "" };
    let hosts: String = pools.iter().map(|pool| virtual_host(pool, admits)).collect();
    let clusters: String = pools.iter().map(|pool| of_pool(pool, controlled)).collect();
    // Envoy does not discover endpoints without.
    let node = match controlled {
        Some((_, true)) => "node: { id: sidelong, cluster: sidelong }\n",
        _ => "",
    };
    format!(
        r#"{node}static_resources:
  listeners:
  - name: sidelong
    address: {{ socket_address: {{ address: {address}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: sidelong
          http_filters:
{admission}          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            ignore_port_in_host_matching: true
            virtual_hosts:
{hosts}  clusters:
{clusters}"#
    )
}

const ADMISSION: &str = r#"          - name: sidelong_admission
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
              dynamic_module_config: { name: sidelong_envoy }
              filter_name: admission
"#;

/// The virtual host of a pool, which rejects clients by the verdicts of the front of that prefix.
fn virtual_host(pool: &Pool<'_>, admits: Option<&str>) -> String {
    let domains: Vec<_> = pool.hosts.iter().map(|host| format!("{host:?}")).collect();
    let admission = admits.map_or_else(String::new, |prefix| {
        format!(
            r#"              typed_per_filter_config:
                sidelong_admission:
                  "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute
                  dynamic_module_config: {{ name: sidelong_envoy }}
                  filter_name: admission
                  filter_config: {{ "@type": type.googleapis.com/google.protobuf.StringValue, value: {words:?} }}
"#,
            words = words(pool, prefix)
        )
    });
    format!(
        r#"            - name: {name:?}
              domains: [{domains}]
              routes:
              - match: {{ prefix: / }}
                route:
                  cluster: {name:?}
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset-before-request
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config: {{ "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate }}
{admission}"#,
        name = pool.name,
        domains = domains.join(", "),
    )
}

/// The cluster of a pool.
fn of_pool(pool: &Pool<'_>, controlled: Option<(&str, bool)>) -> String {
    let name = pool.name;
    let policy = match controlled {
        None => "    lb_policy: LEAST_REQUEST\n".to_owned(),
        Some((prefix, _)) => policy(&words(pool, prefix)),
    };
    if let Some((prefix, true)) = controlled {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        return format!(
            "  - name: {name:?}\n    connect_timeout: {CONNECT_S}s\n    type: EDS\n    eds_cluster_config:\n      eds_config:\n        \
             resource_api_version: V3\n        path_config_source:\n          path: {path:?}\n          \
             watched_directory: {{ path: {directory:?} }}\n{policy}",
            path = endpoints(prefix, name),
        );
    }
    let mut endpoints = String::new();
    for (_, address) in &pool.servers {
        let address = match address {
            ServerAddress::Tcp(address) => {
                format!("socket_address: {{ address: \"{}\", port_value: {} }}", address.ip(), address.port())
            }
            ServerAddress::Unix(path) => format!("pipe: {{ path: {path:?} }}"),
        };
        let _ = writeln!(endpoints, "        - endpoint: {{ address: {{ {address} }} }}");
    }
    format!(
        "  - name: {name:?}\n    connect_timeout: {CONNECT_S}s\n    load_assignment:\n      cluster_name: {name:?}\n      endpoints:\n      \
         - lb_endpoints:\n{endpoints}{policy}"
    )
}

/// The policy by which Sidelong chooses a cluster's hosts, and the filter that sees when a request ends.
fn policy(words: &str) -> String {
    format!(
        r#"    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.dynamic_modules
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.dynamic_modules.v3.DynamicModulesLoadBalancerConfig
            dynamic_module_config: {{ name: sidelong_envoy }}
            lb_policy_name: sidelong
            lb_policy_config: {{ "@type": type.googleapis.com/google.protobuf.StringValue, value: {words:?} }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http_protocol_options: {{}} }}
        http_filters:
        - name: sidelong_request
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
            dynamic_module_config: {{ name: sidelong_envoy }}
            filter_name: request
        - name: envoy.filters.http.upstream_codec
          typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec }}
"#
    )
}

/// A site as the module's configuration names it.
fn words(pool: &Pool<'_>, prefix: &str) -> String {
    format!("{prefix} {}", pool.name)
}
