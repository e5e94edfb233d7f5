//! What is refused of proxies that a front controls.

use crate::support::{refused, refused_after};

#[test]
fn only_a_haproxy_that_chooses_reads_files() {
    let of = |keys: &str| refused_after(&format!("[[front]]\nname = \"f\"\n{keys}\n"));
    for proxy in ["nginx", "httpd", "envoy", "library", "connect"] {
        let error = of(&format!("proxy = \"{proxy}\"\nby = \"weights\""));
        assert!(
            error.ends_with(&format!(
                "front \"f\" has by = \"weights\" with proxy = \"{proxy}\"; expected by = \"choose\", the default: of all \
                 proxies only HAProxy takes weights"
            )),
            "{error}"
        );
    }
    let error = of("proxy = \"haproxy\"\nsocket = \"/s\"\ndir = \"/d\"");
    assert!(
        error.ends_with("expected by = \"choose\" with them: by weights HAProxy reads no files"),
        "{error}"
    );
    for keys in [
        "by = \"choose\"\nadd_servers = \"check\"",
        "add_servers = \"check; del server a/b\"",
        "add_servers = \"check weight 1\"",
    ] {
        let error = of(&format!("proxy = \"haproxy\"\nsocket = \"/s\"\n{keys}"));
        assert!(error.contains("add_servers"), "{error}");
    }
}

/// Connections to a site's address are sent to its nodes, all of one family.
#[test]
fn connections_are_led_where_a_front_leads_them() {
    const CONNECT: &str = "connect = \"127.77.0.1:80\"\n";
    let of = |connect: &str, server: &str, proxy: &str| {
        let site = format!("[[site]]\nname = \"a\"\nhosts = [\"a.example\"]\n{connect}");
        let node = format!("[[node]]\nname = \"n\"\nserver = \"{server}\"\n");
        refused(&format!("{site}{node}[[front]]\nname = \"f\"\nproxy = \"{proxy}\"\n"))
    };
    for (connect, server, proxy, said) in [
        ("", "127.0.0.1:80", "connect", "site \"a\" has no connect, and front \"f\" has proxy = \"connect\""),
        (
            CONNECT,
            "[::1]:80",
            "connect",
            "node \"n\" is at [::1]:80, and connect of site \"a\" is of another family",
        ),
        (CONNECT, "unix:/run/socket", "connect", "node \"n\" is at a Unix socket"),
        (CONNECT, "127.0.0.1:80", "nginx", "site \"a\" has connect, and no front has proxy = \"connect\""),
        (CONNECT, "127.77.0.1:80", "connect", "would listen on"),
    ] {
        let error = of(connect, server, proxy);
        assert!(error.contains(said), "{error}");
    }
}
