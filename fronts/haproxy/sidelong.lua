-- SPDX-License-Identifier: MIT OR Apache-2.0
--
-- Sidelong in HAProxy: `sidelong front` says to which server each request goes, and which clients a site admits.
--
--     global
--         setenv SIDELONG_FRONT /run/sidelong/web1
--         lua-load-per-thread /usr/local/share/sidelong/sidelong.lua
--     backend be_alpha
--         balance leastconn
--         http-request lua.sidelong_admission alpha
--         use-server %[str(be_alpha),lua.sidelong(alpha)] if TRUE
--         http-response set-var(txn.sidelong_answered) srv_name,lua.sidelong_answered(be_alpha)
--         server n1 10.0.0.1:8080
--
-- A server at weight 0, or that drains, is never chosen. So what a move waits for is the same as without this: the front sets
-- weights, and asks HAProxy for its requests. Where nothing is chosen HAProxy goes by weights.

local sidelong = require("sidelong_haproxy")

-- Servers are looked up anew so often: addresses may change.
local LOOK_MS = 1000

local prefix = os.getenv("SIDELONG_FRONT")
if not prefix then
    error("SIDELONG_FRONT is not set: add a line `setenv SIDELONG_FRONT DIR/NAME` above, with dir and name of the front")
end
local wrong = sidelong.open(prefix)
if wrong then
    core.Warning("sidelong: " .. wrong .. "; until then requests are sent by weights")
end

-- By name: the backends that have asked.
local backends = {}

local function look(backend)
    local names, addresses, places = {}, {}, {}
    for name, server in pairs(backend.servers) do
        names[#names + 1] = name
        addresses[#addresses + 1] = server:get_addr()
        places[name] = #names
    end
    backend.pool:set(names, addresses)
    backend.places = places
end

local function new_backend(name, site)
    local known = core.backends[name]
    if not known then
        error("there is no backend " .. name .. ": its own name must be in its line use-server")
    end
    local backend = { servers = known.servers, pool = sidelong.pool(prefix, site) }
    look(backend)
    backends[name] = backend
    return backend
end

-- A number in HAProxy 2, later a boolean.
local function is_draining(server)
    local drains = server:is_draining()
    return drains == true or drains == 1
end

core.register_converters("sidelong", function(name, site)
    local backend = backends[name] or new_backend(name, site)
    local chosen = backend.pool:choose()
    while chosen and is_draining(backend.servers[chosen]) do
        chosen = backend.pool:choose(true)
    end
    return chosen or ""
end)

-- Once its answer begins, a request no longer counts. Only a filter sees the end of an answer, and costs as much as the request.
core.register_converters("sidelong_answered", function(server, name)
    local backend = backends[name]
    local place = backend and backend.places[server]
    if place then
        backend.pool:answered(place)
    end
end)

-- By site: a pool without servers.
local sites = {}

core.register_action("sidelong_admission", { "http-req" }, function(txn, site)
    local pool = sites[site]
    if not pool then
        pool = sidelong.pool(prefix, site)
        sites[site] = pool
    end
    -- At a Unix socket all clients are one.
    local seconds, reason = pool:reject((txn.f:src() or "") .. ":" .. (txn.f:src_port() or 0))
    if seconds then
        local reply = txn:reply({ status = 503 })
        reply:add_header("Retry-After", tostring(seconds))
        reply:add_header("X-Sidelong-Reason", reason)
        txn:set_var("txn.sidelong_reason", reason)
        txn:done(reply)
    end
end, 1)

core.register_task(function()
    while true do
        core.msleep(LOOK_MS)
        for _, backend in pairs(backends) do
            look(backend)
        end
    end
end)
