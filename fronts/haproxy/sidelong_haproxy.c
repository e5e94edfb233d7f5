/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What HAProxy's Lua asks to which server a request goes: a module in C for sidelong.lua, which is in this directory.
 *
 *     sidelong.open(prefix)            the front with that prefix; a line that says what is wrong, or nil
 *     pool = sidelong.pool(prefix, site)
 *     pool:set(names, addresses)       its servers
 *     name = pool:choose()             the name of one, or nil if HAProxy is to choose
 *     name = pool:choose(true)         another one for the same request
 *     pool:answered(place)             the server at that place of `names` has answered
 *     seconds, reason = pool:reject(client)
 *                                      after how many seconds a client (ADDRESS:PORT) is to come back, and why; nil if it is
 *                                      admitted
 *
 * A pool is of one Lua state, which runs in one thread at a time. HAProxy counts requests itself.
 */
#include <lauxlib.h>
#include <lua.h>
#include <stdlib.h>
#include <string.h>

#include "sidelong.h"

#define POOL "sidelong.pool"
/* Servers that are asked for, for one request. */
#define TRIES 3
/* A front that begins another life during a choice is asked again, this often. */
#define LIVES 3

struct server {
    struct sockaddr_storage address;
    int node;
};

struct pool {
    sidelong_front *front;
    sidelong_site site;
    /* The servers, the first of which is named by the first of `names`, a table in the registry. */
    struct server *servers;
    size_t count;
    int names;
    /* By node: the server's place in `names`, or 0. Of the front's life `generation`. */
    int *of;
    size_t of_count;
    uint64_t generation;
    /* Nodes that were chosen for this request. */
    unsigned tried[TRIES];
    unsigned tried_count;
    char name[];
};

/* Looks up which nodes the servers are. */
static bool find_nodes(struct pool *its, uint64_t generation)
{
    int last = -1;

    for (size_t i = 0; i < its->count; i++) {
        its->servers[i].node = sidelong_node(its->front, (const struct sockaddr *)&its->servers[i].address);
        if (its->servers[i].node > last)
            last = its->servers[i].node;
    }
    free(its->of);
    its->of_count = (size_t)(last + 1);
    its->of = calloc(its->of_count + 1, sizeof(*its->of));
    if (!its->of) {
        its->of_count = 0;
        return false;
    }
    for (size_t i = 0; i < its->count; i++)
        if (its->servers[i].node >= 0 && !its->of[its->servers[i].node])
            its->of[its->servers[i].node] = (int)(i + 1);
    its->generation = generation;
    return true;
}

static bool is_usable(void *context, unsigned node)
{
    const struct pool *its = context;

    for (unsigned i = 0; i < its->tried_count; i++)
        if (its->tried[i] == node)
            return false;
    return node < its->of_count && its->of[node];
}

/* The place in `names` of the server that a request goes to; 0 if HAProxy is to choose. */
static int choose(struct pool *its)
{
    for (int life = 0; life < LIVES && its->tried_count < TRIES; life++) {
        uint64_t generation = sidelong_generation(its->front);
        sidelong_request request = {0};

        if ((!its->of || generation != its->generation) && !find_nodes(its, generation))
            return 0;
        sidelong_choice choice = sidelong_choose(its->front, &its->site, is_usable, its, &request);
        if (sidelong_generation(its->front) != its->generation) {
            sidelong_ended(&request);
            continue;
        }
        if (choice != SIDELONG_CHOSEN)
            return 0;
        its->tried[its->tried_count++] = request.node;
        int place = its->of[request.node];
        sidelong_handed_over(&request);
        return place;
    }
    return 0;
}

static int pool_choose(lua_State *lua)
{
    struct pool *its = luaL_checkudata(lua, 1, POOL);

    if (!lua_toboolean(lua, 2))
        its->tried_count = 0;
    int place = choose(its);
    if (!place)
        return 0;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, its->names);
    lua_rawgeti(lua, -1, place);
    return 1;
}

static int pool_answered(lua_State *lua)
{
    struct pool *its = luaL_checkudata(lua, 1, POOL);
    lua_Integer place = luaL_checkinteger(lua, 2);

    if (place <= 0 || (size_t)place > its->count || sidelong_generation(its->front) != its->generation)
        return 0;
    /* Since the servers were set, none may have been chosen. */
    if (!its->of && !find_nodes(its, its->generation))
        return 0;
    if (its->servers[place - 1].node >= 0)
        sidelong_handed_back(its->front, (unsigned)its->servers[place - 1].node);
    return 0;
}

static int pool_reject(lua_State *lua)
{
    struct pool *its = luaL_checkudata(lua, 1, POOL);
    size_t bytes;
    const char *text = luaL_checklstring(lua, 2, &bytes);
    struct sockaddr_storage address = sidelong_address(text, bytes);
    sidelong_decision decision =
        sidelong_admit(its->front, &its->site, sidelong_client((const struct sockaddr *)&address));

    if (decision.admit)
        return 0;
    lua_pushinteger(lua, (lua_Integer)decision.retry_after_s);
    lua_pushstring(lua, sidelong_reason(decision.why));
    return 2;
}

static int pool_set(lua_State *lua)
{
    struct pool *its = luaL_checkudata(lua, 1, POOL);
    luaL_checktype(lua, 2, LUA_TTABLE);
    luaL_checktype(lua, 3, LUA_TTABLE);
    size_t count = (size_t)lua_rawlen(lua, 3);
    struct server *servers = calloc(count + 1, sizeof(*servers));

    if (!servers)
        return luaL_error(lua, "no memory");
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        lua_rawgeti(lua, 3, (lua_Integer)(i + 1));
        const char *text = lua_tolstring(lua, -1, &bytes);
        if (text)
            servers[i].address = sidelong_address(text, bytes);
        lua_pop(lua, 1);
    }
    free(its->servers);
    its->servers = servers;
    its->count = count;
    free(its->of);
    its->of = NULL;
    luaL_unref(lua, LUA_REGISTRYINDEX, its->names);
    lua_pushvalue(lua, 2);
    its->names = luaL_ref(lua, LUA_REGISTRYINDEX);
    return 0;
}

static int pool_free(lua_State *lua)
{
    struct pool *its = luaL_checkudata(lua, 1, POOL);

    free(its->servers);
    free(its->of);
    its->servers = NULL;
    its->of = NULL;
    return 0;
}

static int new_pool(lua_State *lua)
{
    char why[SIDELONG_WHY_BYTES];
    size_t bytes;
    const char *prefix = luaL_checkstring(lua, 1), *name = luaL_checklstring(lua, 2, &bytes);

    luaL_argcheck(lua, bytes > 0 && bytes <= SIDELONG_NAME_BYTES, 2, "it must be the name of a site");
    struct pool *its = lua_newuserdata(lua, sizeof(*its) + bytes + 1);
    memset(its, 0, sizeof(*its));
    memcpy(its->name, name, bytes + 1);
    its->site.name = its->name;
    its->names = LUA_NOREF;
    its->front = sidelong_front_open(prefix, why);
    if (!its->front)
        return luaL_error(lua, "%s", why);
    luaL_setmetatable(lua, POOL);
    return 1;
}

static int open_front(lua_State *lua)
{
    char why[SIDELONG_WHY_BYTES];

    sidelong_front_open(luaL_checkstring(lua, 1), why);
    if (!*why)
        return 0;
    lua_pushstring(lua, why);
    return 1;
}

int luaopen_sidelong_haproxy(lua_State *lua);

int luaopen_sidelong_haproxy(lua_State *lua)
{
    static const luaL_Reg module[] = {{"open", open_front}, {"pool", new_pool}, {NULL, NULL}};
    static const luaL_Reg pool[] = {
        {"choose", pool_choose}, {"answered", pool_answered}, {"reject", pool_reject},
        {"set", pool_set},       {"__gc", pool_free},         {NULL, NULL},
    };

    /* HAProxy's Lua must be the one whose headers this was built with. */
    luaL_checkversion(lua);
    luaL_newmetatable(lua, POOL);
    luaL_setfuncs(lua, pool, 0);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, -2, "__index");
    luaL_newlib(lua, module);
    return 1;
}
