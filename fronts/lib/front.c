/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Files that were not there or were replaced are looked for so often. */
#define REOPEN_NS 100000000ull
/* And so often if both were lost: until then requests go to backups alone, and the front makes them anew at once. */
#define REOPEN_LOST_NS 10000000ull
/* What the front says is copied so often, for when its file is cut short. */
#define KEEP_NS 100000000ull
/* Most mappings in a process. Old ones stay, because requests may still be counted in them. */
#define MAPPINGS_MAX 64
#define PATH_BYTES 512
/* A node may have a server for each site. */
#define SERVERS_MAX (1u << 26)
/* A request chooses again, as in the edge, if another one tries the node, or the node has just left. */
#define ATTEMPTS 3
/* crates/policy, balance.rs: larger sites are sampled. */
#define SCAN_MAX 64
#define SAMPLE 16
enum { WEIGHTED, ROUND_ROBIN, LEAST_CONNECTIONS, POWER_OF_TWO };

/* What a request seldom needs, and what each needs: its function then has all it works with in registers. */
#define RARE __attribute__((cold, noinline))
#define EACH inline __attribute__((always_inline))

/* A slot that is not looked for yet, and that none was free. */
#define NO_SLOT_YET (-1)
#define NO_SLOT (-2)

/* The two regions of one life of their files. It is never freed: requests may be counted in it. */
struct mapping {
    struct choice_region *choice;
    /* Its part by node. */
    struct choice_node *node;
    struct workers_region *workers;
    size_t choice_bytes;
    size_t workers_bytes;
    dev_t device[2];
    ino_t inode[2];
    uint32_t nodes;
    uint32_t sites;
    uint32_t servers;
    _Atomic int slot;
    _Atomic bool is_lost;
    /* What `choice` last said, in two copies, so that one is whole while the other is made. */
    _Atomic uint64_t kept_ns;
    size_t kept_words;
    /* The whole one: 0 or 1. */
    _Atomic size_t kept_at;
    /* The front's life in which the files were last compared with those that are mapped. */
    _Atomic uint64_t life;
    _Atomic uint64_t kept[];
};

struct sidelong_front {
    struct sidelong_front *next;
    char prefix[PATH_BYTES];
    _Atomic(struct mapping *) current;
    _Atomic uint64_t tried_ns;
};

/* All mappings of this process, for the handler of SIGBUS and after a fork. */
static _Atomic(struct mapping *) mappings[MAPPINGS_MAX];
/* All fronts of this process. */
static sidelong_front *fronts;
/* Held to add to them, and to take a slot. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before_us;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
/* Where this process begins to take turns: equal workers begin at other nodes. */
static uint64_t first_turn;
/* When this process started, in clock ticks since boot; 0 if that is not known. */
static uint32_t started;

static bool lies_in(const void *address, const void *begin, size_t bytes)
{
    return (uintptr_t)address - (uintptr_t)begin < bytes;
}

static bool is_due(_Atomic uint64_t *last_ns, uint64_t now_ns, uint64_t every_ns)
{
    uint64_t last = atomic_load_explicit(last_ns, memory_order_relaxed);

    return now_ns >= last && now_ns - last >= every_ns && atomic_compare_exchange_strong(last_ns, &last, now_ns);
}

static void copy_words(_Atomic uint64_t *to, const _Atomic uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        atomic_store_explicit(&to[i], atomic_load_explicit(&from[i], memory_order_relaxed), memory_order_relaxed);
}

/*
 * Fills memory with what the front said last: a copy of that, and which site each node served at the very last. The other file has
 * that. If it is lost as well, no node is known to serve a site: it may have changed sites since this process looked.
 */
static void restore(const struct mapping *map, struct choice_region *choice)
{
    const _Atomic uint64_t *kept = &map->kept[atomic_load(&map->kept_at) * map->kept_words];
    struct choice_node *node = (void *)&choice->site[map->sites];

    copy_words((void *)choice, kept, map->kept_words);
    for (uint32_t i = 0; i < map->nodes; i++) {
        uint64_t ownership = atomic_load(&map->workers->node[i].ownership);

        if (ownership)
            atomic_store(&node[i].ownership, ownership);
    }
    /* A file loses its first page first. */
    atomic_thread_fence(memory_order_acquire);
    bool is_known = map->workers->header.magic == MAGIC;
    for (uint32_t i = 0; i < map->nodes && !is_known; i++)
        atomic_store(&node[i].ownership, 0);
}

/*
 * Replaces the memory of a file that was cut short by private memory, at once for all threads: who serves what is as it was
 * last heard, and counts go nowhere. Also runs in the handler of SIGBUS.
 */
static bool lose(struct mapping *map, bool is_choice)
{
    void *begin = is_choice ? (void *)map->choice : (void *)map->workers;
    size_t bytes = is_choice ? map->choice_bytes : map->workers_bytes;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    if (is_choice)
        restore(map, memory);
    atomic_store(&map->is_lost, true);
    return mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;

    for (int i = 0; i < MAPPINGS_MAX; i++) {
        struct mapping *one = atomic_load(&mappings[i]);
        bool in_choice = one && lies_in(info->si_addr, one->choice, one->choice_bytes);

        if (!in_choice && !(one && lies_in(info->si_addr, one->workers, one->workers_bytes)))
            continue;
        if (!lose(one, in_choice))
            break;
        errno = error;
        return;
    }
    if (before_us.sa_flags & SA_SIGINFO) {
        before_us.sa_sigaction(number, info, context);
    } else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN) {
        before_us.sa_handler(number);
    } else {
        /* The instruction is repeated, and ends the process. */
        signal(SIGBUS, SIG_DFL);
    }
}

static void handle_bus_errors(void)
{
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER}, now;

    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) != 0 || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error))
        return;
    before_us = now;
    sigaction(SIGBUS, &ours, NULL);
}

/* When this process started, in clock ticks since boot: proc_pid_stat(5), field 22. */
static uint32_t started_at(void)
{
    char text[1024], *at;
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

    if (file >= 0)
        close(file);
    text[bytes > 0 ? bytes : 0] = 0;
    /* The program's name, field 2, may have spaces and brackets. */
    at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? (uint32_t)strtoull(at + 1, NULL, 10) : 0;
}

/* What this process is. It may soon change its root directory, and no longer see /proc. */
static void know_itself(void)
{
    first_turn = sidelong_mix((uint64_t)getpid());
    started = started_at();
}

static void before_fork(void)
{
    pthread_mutex_lock(&changing);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&changing);
}

static void in_child(void)
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        struct mapping *one = atomic_load(&mappings[i]);

        if (one)
            atomic_store(&one->slot, NO_SLOT_YET);
    }
    know_itself();
    /* The parent may have got another handler since: httpd installs its own before it starts children. */
    handle_bus_errors();
    pthread_mutex_unlock(&changing);
}

static void prepare(void)
{
    know_itself();
    handle_bus_errors();
    pthread_atfork(before_fork, after_fork, in_child);
}

static const _Atomic uint16_t *list_of(const struct mapping *map, unsigned site)
{
    const _Atomic uint16_t *lists = (void *)&map->node[map->nodes];

    return &lists[(size_t)site * ((map->nodes + 3) / 4 * 4)];
}

static struct worker_slot *slot_of(const struct mapping *map, int slot)
{
    char *slots = (void *)&map->workers->node[map->nodes];

    return (void *)(slots + (size_t)slot * (sizeof(struct worker_slot) + map->nodes * sizeof(struct worker_counts)));
}

static int fails(char *why, int error, const char *path, const char *what)
{
    /* Of a path that is too long the end tells most. */
    size_t room = SIDELONG_WHY_BYTES / 2, bytes = strlen(path);

    snprintf(why, SIDELONG_WHY_BYTES, "%.127s: %.125s", bytes < room ? path : path + bytes - room + 1, what);
    return error;
}

/* A file that may be one of a front's two. */
struct file {
    char path[PATH_BYTES + 32];
    int file;
    struct stat found;
    /* How it begins: both are longer than this. */
    struct choice_region begin;
};

static void path_of(const sidelong_front *front, bool workers, struct file *of)
{
    snprintf(of->path, sizeof(of->path), "%s.%s.region", front->prefix, workers ? "workers" : "choice");
}

/* Opens the file, if it is a region of that kind. */
static int open_file(struct file *of, uint32_t kind, char why[SIDELONG_WHY_BYTES])
{
    char text[128];

    /* A FIFO would be waited for. */
    of->file = open(of->path, (kind == KIND_WORKERS ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (of->file < 0 || fstat(of->file, &of->found) != 0) {
        int error = errno;
        snprintf(text, sizeof(text), "%s; `sidelong front` makes it", strerror(error));
        return fails(why, error, of->path, text);
    }
    const char *wrong = pread(of->file, &of->begin, sizeof(of->begin), 0) != (ssize_t)sizeof(of->begin)
                            ? "no Sidelong region"
                            : sidelong_check(&of->begin.header, (uint64_t)of->found.st_size, kind, text, sizeof(text));
    return wrong ? fails(why, EPROTO, of->path, wrong) : 0;
}

/* The length of the counts' region of so many nodes. */
static size_t workers_bytes(size_t nodes)
{
    size_t slot = sizeof(struct worker_slot) + nodes * sizeof(struct worker_counts);

    return sizeof(struct workers_region) + nodes * sizeof(struct worker_node) + SLOTS * slot;
}

/* Whether the regions are as long as those of so many nodes, sites and servers; those of the next release may be longer. */
static bool fit(const struct choice_region *choice, const struct region_header *workers)
{
    size_t nodes = choice->nodes, sites = choice->sites, servers = choice->servers;
    size_t choice_bytes = sizeof(struct choice_region) + sites * (sizeof(struct choice_site) + (nodes + 3) / 4 * 8)
                          + nodes * sizeof(struct choice_node) + servers * sizeof(struct choice_server);

    return nodes <= NODES_MAX && sites <= SITES_MAX && servers <= SERVERS_MAX && choice_bytes <= choice->header.len
           && workers_bytes(nodes) <= workers->len;
}

/* Maps both files, or private memory if that of the counts is not open; NULL, with errno, if that is impossible. */
static struct mapping *map_files(const struct file files[2])
{
    const struct choice_region *begin = &files[0].begin;
    size_t kept = begin->header.len / sizeof(uint64_t) * sizeof(uint64_t);
    int flags = files[1].file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    struct mapping *map = calloc(1, sizeof(*map) + 2 * kept);

    if (!map)
        return NULL;
    map->choice_bytes = begin->header.len;
    map->workers_bytes = files[1].begin.header.len;
    map->choice = mmap(NULL, map->choice_bytes, PROT_READ, MAP_SHARED, files[0].file, 0);
    map->workers = mmap(NULL, map->workers_bytes, PROT_READ | PROT_WRITE, flags, files[1].file, 0);
    if (map->choice == MAP_FAILED || map->workers == MAP_FAILED) {
        int error = errno;
        if (map->choice != MAP_FAILED)
            munmap(map->choice, map->choice_bytes);
        if (map->workers != MAP_FAILED)
            munmap(map->workers, map->workers_bytes);
        free(map);
        errno = error;
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        map->device[i] = files[i].found.st_dev;
        map->inode[i] = files[i].found.st_ino;
    }
    map->nodes = begin->nodes;
    map->sites = begin->sites;
    map->node = (void *)&map->choice->site[map->sites];
    map->servers = (uint32_t)begin->servers;
    map->kept_words = kept / sizeof(uint64_t);
    map->slot = NO_SLOT_YET;
    map->is_lost = files[1].file < 0;
    return map;
}

/* Whether the files are still those that are mapped. */
static bool is_current(const struct mapping *map, const struct file files[2])
{
    struct stat found;

    for (int i = 0; i < 2; i++)
        if (stat(files[i].path, &found) != 0 || found.st_dev != map->device[i] || found.st_ino != map->inode[i])
            return false;
    return !atomic_load(&map->is_lost);
}

/* The front's life that the memory is of. */
static uint64_t life_of(const struct mapping *map)
{
    return map ? __atomic_load_n(&map->choice->header.incarnation, __ATOMIC_ACQUIRE) : 0;
}

/* That, and what names and addresses it has said since: lives begin ms apart, and no change is done in one. */
static uint64_t generation_of(const struct mapping *map)
{
    return map ? life_of(map) + atomic_load_explicit(&map->choice->version, memory_order_acquire) : 0;
}

/* Copies what the front says now, unless its file was cut short meanwhile. Under `changing`. */
static void keep(struct mapping *map)
{
    size_t other = 1 - atomic_load(&map->kept_at);

    copy_words(&map->kept[other * map->kept_words], (const void *)map->choice, map->kept_words);
    /* A file loses its first page first. */
    atomic_thread_fence(memory_order_acquire);
    if (map->choice->header.magic == MAGIC)
        atomic_store(&map->kept_at, other);
}

/*
 * Whether an open choice is of another life of the front than a mapping that is lost. A process may have been forked with one that was lost
 * before: it has not heard what all others have, and the counts may be lost now.
 */
static bool tells_more(const struct file *choice, const struct mapping *map)
{
    return map && atomic_load(&map->is_lost) && choice->begin.header.incarnation != atomic_load(&map->life);
}

/* Opens the files anew, if they are others than those that are mapped. Under `changing`. */
static int attach(sidelong_front *front, char why[SIDELONG_WHY_BYTES])
{
    struct mapping *map = atomic_load(&front->current);
    struct file files[2] = {{.file = -1}, {.file = -1}};
    int place = 0;

    path_of(front, false, &files[0]);
    path_of(front, true, &files[1]);
    if (map && is_current(map, files)) {
        atomic_store(&map->life, life_of(map));
        return 0;
    }
    while (place < MAPPINGS_MAX && atomic_load(&mappings[place]))
        place++;
    if (place == MAPPINGS_MAX)
        return fails(why, ENOMEM, front->prefix, "its files were replaced too often: restart the proxy");
    int error = open_file(&files[0], KIND_CHOICE, why);
    if (!error) {
        error = open_file(&files[1], KIND_WORKERS, why);
        if ((error == ENOENT || error == EPROTO) && tells_more(&files[0], map)) {
            /* Private memory takes the place of the counts. */
            error = 0;
            if (files[1].file >= 0)
                close(files[1].file);
            files[1].file = -1;
            files[1].begin.header.len = workers_bytes(files[0].begin.nodes);
        }
    }
    if (!error && !fit(&files[0].begin, &files[1].begin.header))
        error = fails(why, EPROTO, front->prefix, "the two regions are not of one front: it may be starting");
    /* A front that begins anew has not said yet who serves which site; what the last one said still holds. */
    if (!error && map && files[0].begin.time_ns == 0)
        error = fails(why, EAGAIN, front->prefix, "the front is starting");
    if (!error) {
        map = map_files(files);
        error = map ? 0 : fails(why, errno, front->prefix, strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        if (files[i].file >= 0)
            close(files[i].file);
    if (error)
        return error;
    /* From now on a file that is cut short ends nobody, so from now on it may be read. */
    atomic_store(&mappings[place], map);
    keep(map);
    atomic_store(&map->life, life_of(map));
    atomic_store(&front->current, map);
    return 0;
}

/* What is mapped now; NULL if nothing ever was. */
static struct mapping *mapping_of(sidelong_front *front)
{
    return atomic_load_explicit(&front->current, memory_order_acquire);
}

/* The time since the front's last scan; UINT64_MAX if there was none, or the front has ended. */
static uint64_t age_of(const struct mapping *map, uint64_t now_ns)
{
    uint64_t time_ns = atomic_load_explicit(&map->choice->time_ns, memory_order_acquire);

    if (time_ns == 0 || atomic_load_explicit(&map->is_lost, memory_order_relaxed))
        return UINT64_MAX;
    /* A time to come is slightly so, or from before the machine was restarted. */
    return now_ns > time_ns ? now_ns - time_ns : time_ns - now_ns;
}

static bool is_stale(const struct mapping *map, uint64_t now_ns)
{
    return age_of(map, now_ns) > map->choice->stale_ns;
}

/* Looks for a front that may be back, if it is time to, and returns what is mapped then. */
static RARE struct mapping *look_again(sidelong_front *front, uint64_t now_ns)
{
    char why[SIDELONG_WHY_BYTES];
    struct mapping *map = mapping_of(front);

    /* Cut short and written to before anybody looked. */
    if (map && map->choice->header.magic != MAGIC)
        lose(map, true);
    bool lost = map && atomic_load_explicit(&map->is_lost, memory_order_relaxed);
    if (lost) {
        /* A request may have no server, so another thread's look is waited for. */
        pthread_mutex_lock(&changing);
        if (is_due(&front->tried_ns, now_ns, REOPEN_LOST_NS))
            attach(front, why);
        pthread_mutex_unlock(&changing);
    } else if (is_due(&front->tried_ns, now_ns, REOPEN_NS) && pthread_mutex_trylock(&changing) == 0) {
        attach(front, why);
        pthread_mutex_unlock(&changing);
    }
    return mapping_of(front);
}

static RARE void keep_again(struct mapping *map)
{
    if (pthread_mutex_trylock(&changing) != 0)
        return;
    keep(map);
    pthread_mutex_unlock(&changing);
}

/* What is mapped, and whether it is too old to choose by, after a look for a front that may be back. */
static struct mapping *look(sidelong_front *front, uint64_t now_ns, bool *stale)
{
    struct mapping *map = mapping_of(front);

    *stale = !map || is_stale(map, now_ns);
    /* The next life of the front may have other files. */
    if (*stale || life_of(map) != atomic_load_explicit(&map->life, memory_order_relaxed)) {
        map = look_again(front, now_ns);
        *stale = !map || is_stale(map, now_ns);
        return map;
    }
    if (is_due(&map->kept_ns, now_ns, KEEP_NS))
        keep_again(map);
    return map;
}

/* The front with that prefix, which is made if there is none. Under `changing`. */
static sidelong_front *front_of(const char *prefix)
{
    for (sidelong_front *front = fronts; front; front = front->next)
        if (strcmp(front->prefix, prefix) == 0)
            return front;
    sidelong_front *front = calloc(1, sizeof(*front));
    if (!front)
        return NULL;
    snprintf(front->prefix, sizeof(front->prefix), "%s", prefix);
    front->next = fronts;
    fronts = front;
    return front;
}

sidelong_front *sidelong_front_open(const char *prefix, char why[SIDELONG_WHY_BYTES])
{
    *why = 0;
    if (strlen(prefix) >= PATH_BYTES) {
        fails(why, ENAMETOOLONG, prefix, "the path is too long");
        return NULL;
    }
    pthread_once(&prepared, prepare);
    pthread_mutex_lock(&changing);
    sidelong_front *front = front_of(prefix);
    if (front)
        attach(front, why);
    else
        fails(why, ENOMEM, prefix, "no memory for it");
    pthread_mutex_unlock(&changing);
    return front;
}

bool sidelong_controls(sidelong_front *front, uint64_t *age_ns)
{
    uint64_t now_ns = sidelong_now_ns();
    bool stale;
    struct mapping *map = look(front, now_ns, &stale);

    *age_ns = map ? age_of(map, now_ns) : UINT64_MAX;
    return !stale;
}

uint64_t sidelong_generation(sidelong_front *front)
{
    struct mapping *map = atomic_load_explicit(&front->current, memory_order_acquire);
    bool stale;

    /* Each choice looks for other files. */
    return generation_of(map ? map : look(front, sidelong_now_ns(), &stale));
}

static uint64_t fnv1a(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < bytes && text[i]; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3ull;
    return hash;
}

int sidelong_node(sidelong_front *front, const struct sockaddr *address)
{
    struct mapping *map = mapping_of(front);
    uint8_t bytes[16] = {0};
    uint16_t family, port = 0;

    if (!map || !address)
        return -1;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        family = 4;
        port = ntohs(v4->sin_port);
        memcpy(bytes, &v4->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        bool is_mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        family = is_mapped ? 4 : 6;
        port = ntohs(v6->sin6_port);
        memcpy(bytes, v6->sin6_addr.s6_addr + (is_mapped ? 12 : 0), is_mapped ? 4 : 16);
    } else if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *local = (const void *)address;
        uint64_t hash = fnv1a(local->sun_path, sizeof(local->sun_path));
        family = 1;
        memcpy(bytes, &hash, sizeof(hash));
    } else {
        return -1;
    }
    const struct choice_server *servers = (void *)list_of(map, map->sites);

    for (unsigned i = 0; i < map->servers; i++) {
        const struct choice_server *one = &servers[i];

        if (one->family == family && one->port == port && memcmp(one->address, bytes, sizeof(bytes)) == 0)
            return one->node < map->nodes ? (int)one->node : -1;
    }
    return -1;
}

/* Looks a site up by its name, for that life of the front. */
static RARE int find_site(const struct mapping *map, sidelong_site *site, uint64_t life)
{
    int index = -1;

    for (unsigned one = 0; one < map->sites && index < 0; one++)
        if (strncmp((const char *)map->choice->site[one].name, site->name, NAME_BYTES) == 0)
            index = (int)one;
    __atomic_store_n(&site->found, life << 32 | (uint32_t)(index + 2), __ATOMIC_RELAXED);
    return index;
}

/* The index of a site; -1 if the front does not know it. */
static int site_of(const struct mapping *map, sidelong_site *site)
{
    uint64_t life = generation_of(map);
    uint64_t found = __atomic_load_n(&site->found, __ATOMIC_RELAXED);

    /* In the lower half is the index plus 2, or 1 for a name that is not there. */
    if ((uint32_t)found != 0 && found >> 32 == (uint32_t)life)
        return (int)((uint32_t)found - 2);
    return find_site(map, site, life);
}

/* All of an ownership but its generation, in that state and of that site. */
#define OWNED(state, site) ((uint64_t)(state) << OWNERSHIP_STATE_AT | (uint64_t)((site) + 1) << OWNERSHIP_SITE_AT)

/* Whether a node with this ownership serves the site. */
static bool serves(uint64_t ownership, unsigned site)
{
    uint64_t says = ownership & ~OWNERSHIP_GENERATION_MAX;

    return says == OWNED(OWNERSHIP_SERVING, site) || says == OWNED(OWNERSHIP_PINNED, site);
}

/* crates/policy: health.rs. */
enum health { UP, DOWN, TO_BE_TRIED };
enum cause { CAUSE_CONNECTIONS, CAUSE_SILENCE, CAUSE_REQUESTS };

static EACH enum health health_of(const struct choice_node *node, const struct worker_node *shared, uint64_t now_ns,
                                    uint64_t *word)
{
    *word = atomic_load_explicit(&node->health, memory_order_relaxed);
    if (*word >> HEALTH_PHASE_AT == 0)
        return UP;
    if (now_ns / 1000 < (*word & HEALTH_UNTIL_US_MAX))
        return DOWN;
    /* The trial may be under way, and the front has not looked yet. */
    return atomic_load_explicit(&shared->trial, memory_order_relaxed) == *word ? DOWN : TO_BE_TRIED;
}

/* Whether it accepts connections as far as is known. */
static bool connects(uint64_t word)
{
    return word >> HEALTH_PHASE_AT == 0 || (word >> HEALTH_CAUSE_AT & HEALTH_CAUSE_MAX) != CAUSE_CONNECTIONS;
}

/* What a node must be at least to be chosen. */
enum least { IS_UP, CONNECTS };

/* The nodes of a site, and who asks for one. */
struct candidates {
    const struct choice_node *node;
    const struct worker_node *shared;
    const _Atomic uint16_t *list;
    unsigned nodes;
    unsigned site;
    unsigned count;
    uint64_t now_ns;
    enum least least;
    sidelong_usable usable;
    void *context;
};

static unsigned node_at(const struct candidates *of, unsigned candidate)
{
    unsigned node = atomic_load_explicit(&of->list[candidate], memory_order_relaxed);

    return node < of->nodes ? node : 0;
}

static bool is_of_site(const struct candidates *of, unsigned node)
{
    return serves(atomic_load_explicit(&of->node[node].ownership, memory_order_relaxed), of->site);
}

static EACH bool is_fit(const struct candidates *of, unsigned node)
{
    uint64_t word;
    enum health health = health_of(&of->node[node], &of->shared[node], of->now_ns, &word);

    return (of->least == CONNECTS ? connects(word) : health != DOWN)
           && (!of->usable || of->usable(of->context, node));
}

/* What nodes are compared by. */
enum score { BY_INDEX, BY_REQUESTS };

static uint32_t clamp(int64_t value)
{
    return value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* As of now: with the requests that were sent since the last scan, less those that have ended. */
static EACH uint32_t score_of(const struct candidates *of, unsigned node, enum score by)
{
    uint64_t reading = atomic_load_explicit(&of->node[node].reading, memory_order_relaxed);
    uint64_t sent = atomic_load_explicit(&of->shared[node].sent, memory_order_relaxed);
    int64_t since = (int16_t)((uint16_t)sent - (uint16_t)(reading >> READING_IN_FLIGHT_AT));

    if (by == BY_INDEX)
        return clamp((int64_t)(reading >> READING_INDEX_AT)
                     + since * (int64_t)(reading >> READING_PER_REQUEST_AT & READING_PER_REQUEST_MAX));
    uint32_t requests = (uint32_t)atomic_load_explicit(&of->node[node].requests, memory_order_relaxed);
    return clamp(requests + since);
}

/* A number below `count` (Lemire 2016), as in crates/policy. */
static unsigned below(uint64_t random, unsigned count)
{
    return (unsigned)((random >> 32) * count >> 32);
}

/* The usable nodes with the lowest score. */
struct equals {
    uint32_t lowest;
    unsigned count;
    uint16_t node[SCAN_MAX];
};

/* Takes a node among them, if it is one. What its score rules out is asked nothing else. */
static EACH void compare(struct equals *to, const struct candidates *of, unsigned node, enum score by)
{
    if (!is_of_site(of, node))
        return;
    uint32_t score = score_of(of, node, by);
    if (score > to->lowest || !is_fit(of, node))
        return;
    if (score < to->lowest)
        to->count = 0;
    to->lowest = score;
    to->node[to->count++] = (uint16_t)node;
}

/* One of them; they take turns. -1 if there is none. */
static int one_of(const struct equals *equals, uint64_t ticket)
{
    return equals->count ? equals->node[equals->count == 1 ? 0 : ticket % equals->count] : -1;
}

static EACH int least_of_site(const struct candidates *of, enum score by, uint64_t ticket, uint64_t random)
{
    struct equals equals;

    equals.lowest = UINT32_MAX;
    equals.count = 0;
    if (of->count <= SCAN_MAX) {
        for (unsigned i = 0; i < of->count; i++)
            compare(&equals, of, node_at(of, i), by);
    } else {
        for (unsigned part = 0; part < SAMPLE; part++) {
            unsigned start = (unsigned)((uint64_t)part * of->count / SAMPLE);
            unsigned end = (unsigned)((uint64_t)(part + 1) * of->count / SAMPLE);

            compare(&equals, of, node_at(of, start + below(sidelong_mix(random ^ part), end - start)), by);
        }
    }
    return one_of(&equals, ticket);
}

/* Of two candidates drawn at random, or of the only one. */
static EACH int least_of_two(const struct candidates *of, uint64_t ticket, uint64_t random)
{
    struct equals equals;
    unsigned first = below(random, of->count);

    equals.lowest = UINT32_MAX;
    equals.count = 0;
    compare(&equals, of, node_at(of, first), BY_INDEX);
    if (of->count > 1) {
        unsigned second = (first + 1 + below(sidelong_mix(random), of->count - 1)) % of->count;
        compare(&equals, of, node_at(of, second), BY_INDEX);
    }
    return one_of(&equals, ticket);
}

/* `Balance::choose` of crates/policy: a node, -1 if none is usable. */
static EACH int choose(const struct candidates *of, uint64_t balance, uint64_t ticket, uint64_t random)
{
    int chosen = -1;

    if (of->count == 0)
        return -1;
    switch (balance) {
    case ROUND_ROBIN:
        chosen = (int)node_at(of, (unsigned)(ticket % of->count));
        if (!is_of_site(of, (unsigned)chosen) || !is_fit(of, (unsigned)chosen))
            chosen = -1;
        break;
    case LEAST_CONNECTIONS:
        chosen = least_of_site(of, BY_REQUESTS, ticket, random);
        break;
    case POWER_OF_TWO:
        chosen = least_of_two(of, ticket, random);
        break;
    case WEIGHTED:
    default:
        chosen = least_of_site(of, BY_INDEX, ticket, random);
    }
    if (chosen >= 0)
        return chosen;
    unsigned start = below(sidelong_mix(random), of->count);
    for (unsigned i = 0; i < of->count; i++) {
        unsigned node = node_at(of, (start + i) % of->count);

        if (is_of_site(of, node) && is_fit(of, node))
            return (int)node;
    }
    return -1;
}

/* A node that is up; if none is, one that accepts connections as far as is known. -1 if there is none. */
static EACH int pick(struct candidates *of, uint64_t balance, uint64_t ticket, uint64_t random)
{
    int chosen = choose(of, balance, ticket, random);

    if (chosen < 0) {
        of->least = CONNECTS;
        chosen = choose(of, balance, ticket, random);
    }
    return chosen;
}

static struct candidates candidates_of(const struct mapping *map, unsigned site, uint64_t now_ns)
{
    uint64_t members = atomic_load_explicit(&map->choice->site[site].members, memory_order_acquire);

    return (struct candidates){
        .node = map->node,
        .shared = map->workers->node,
        .list = list_of(map, site),
        .nodes = map->nodes,
        .site = site,
        .count = members < map->nodes ? (unsigned)members : map->nodes,
        .now_ns = now_ns,
    };
}

int sidelong_choose_at(sidelong_front *front, sidelong_site *site, uint64_t now_ns, uint64_t ticket, uint64_t random,
                       sidelong_usable usable, void *context)
{
    struct mapping *map = mapping_of(front);
    int index = map ? site_of(map, site) : -1;

    if (index < 0)
        return -1;
    struct candidates of = candidates_of(map, (unsigned)index, now_ns);
    of.usable = usable;
    of.context = context;
    return pick(&of, map->choice->balance, ticket, random);
}

/* Takes a slot for this process, unless another thread has. */
static RARE int take_slot(struct mapping *map)
{
    pthread_mutex_lock(&changing);
    int slot = atomic_load(&map->slot);
    if (slot == NO_SLOT_YET) {
        uint64_t us = (uint64_t)getpid() << WORKER_PID_AT | started;

        slot = NO_SLOT;
        /* A slot of a process that seems to have ended would be taken away from it. */
        for (int i = 0; started != 0 && i < SLOTS && slot == NO_SLOT; i++) {
            uint64_t none = 0;
            if (atomic_compare_exchange_strong(&slot_of(map, i)->owner, &none, us))
                slot = i;
        }
        atomic_store(&map->slot, slot);
    }
    pthread_mutex_unlock(&changing);
    return slot;
}

/* This process's slot, which it takes if it has none yet. */
static int own_slot(struct mapping *map)
{
    int slot = atomic_load_explicit(&map->slot, memory_order_acquire);

    return slot == NO_SLOT_YET ? take_slot(map) : slot;
}

enum stage { NOWHERE, SENT, ANSWERED };

static void leave(sidelong_request *request)
{
    struct worker_counts *counts = request->counts;
    struct worker_node *shared = request->shared;

    if (request->stage == SENT && counts)
        atomic_fetch_sub_explicit(&counts->unanswered, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&shared->sent, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(counts ? &counts->in_flight : &shared->uncounted, 1, memory_order_release);
    *request = (sidelong_request){0};
}

/* Counts a request, then reads the ownership again: crates/layout, front.rs. */
static bool enter(struct mapping *map, unsigned site, unsigned node, sidelong_request *request)
{
    int slot = own_slot(map);
    struct worker_counts *counts = slot >= 0 ? &slot_of(map, slot)->counts[node] : NULL;
    struct worker_node *shared = &map->workers->node[node];

    atomic_fetch_add(counts ? &counts->in_flight : &shared->uncounted, 1);
    atomic_fetch_add_explicit(&shared->sent, 1, memory_order_relaxed);
    if (counts)
        atomic_fetch_add_explicit(&counts->unanswered, 1, memory_order_relaxed);
    *request = (sidelong_request){.node = node, .stage = SENT, .counts = counts, .shared = shared};
    if (serves(atomic_load(&map->node[node].ownership), site))
        return true;
    leave(request);
    return false;
}

/* Whether a node gets this request. Of those that have failed, and may be tried, one request does. */
static bool wins(struct mapping *map, unsigned node, uint64_t now_ns, enum least least)
{
    struct worker_node *shared = &map->workers->node[node];
    uint64_t word, last = atomic_load_explicit(&shared->trial, memory_order_relaxed);
    enum health health = health_of(&map->node[node], shared, now_ns, &word);

    return health == UP || (least == CONNECTS && connects(word))
           || (health == TO_BE_TRIED && last != word && atomic_compare_exchange_strong(&shared->trial, &last, word));
}

sidelong_choice sidelong_choose(sidelong_front *front, sidelong_site *site, sidelong_usable usable, void *context,
                                sidelong_request *request)
{
    uint64_t now_ns = sidelong_now_ns();
    bool stale;
    struct mapping *map = look(front, now_ns, &stale);

    if (stale)
        return SIDELONG_ALONE;
    int index = site_of(map, site);
    if (index < 0)
        return SIDELONG_NONE;
    uint64_t ticket = first_turn + __atomic_fetch_add(&site->turns, 1, __ATOMIC_RELAXED);
    uint64_t random = ticket ^ now_ns;
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct candidates of = candidates_of(map, (unsigned)index, now_ns);

        of.usable = usable;
        of.context = context;
        random = sidelong_mix(random);
        int chosen = pick(&of, map->choice->balance, ticket, random);
        /* While it looked, a node may have left and another come. */
        if (chosen < 0)
            continue;
        /* Counted first: a trial that is won is one that is sent. */
        if (!enter(map, (unsigned)index, (unsigned)chosen, request))
            continue;
        if (wins(map, (unsigned)chosen, now_ns, of.least))
            return SIDELONG_CHOSEN;
        leave(request);
    }
    return SIDELONG_NONE;
}

bool sidelong_begin(sidelong_front *front, sidelong_site *site, unsigned node, sidelong_request *request)
{
    struct mapping *map = mapping_of(front);
    int index = map ? site_of(map, site) : -1;

    return index >= 0 && node < map->nodes && enter(map, (unsigned)index, node, request);
}

void sidelong_answered(sidelong_request *request, bool successfully)
{
    struct worker_counts *counts = request->counts;

    if (request->stage != SENT)
        return;
    request->stage = ANSWERED;
    if (!counts)
        return;
    atomic_fetch_sub_explicit(&counts->unanswered, 1, memory_order_relaxed);
    if (successfully)
        atomic_fetch_add_explicit(&counts->answers, 1, memory_order_relaxed);
}

void sidelong_failed(sidelong_request *request, bool refused)
{
    struct worker_counts *counts = request->counts;

    if (request->stage != NOWHERE && counts)
        atomic_fetch_add_explicit(refused ? &counts->refused : &counts->failed, 1, memory_order_relaxed);
}

void sidelong_ended(sidelong_request *request)
{
    if (request->stage != NOWHERE)
        leave(request);
}

void sidelong_handed_over(sidelong_request *request)
{
    struct worker_node *shared = request->shared;

    if (request->stage == NOWHERE)
        return;
    atomic_fetch_add_explicit(&shared->sent, 1, memory_order_relaxed);
    leave(request);
}

void sidelong_handed_back(sidelong_front *front, unsigned node)
{
    struct mapping *map = mapping_of(front);

    if (map && node < map->nodes)
        atomic_fetch_sub_explicit(&map->workers->node[node].sent, 1, memory_order_relaxed);
}

sidelong_decision sidelong_admit(sidelong_front *front, sidelong_site *site, uint64_t client)
{
    sidelong_decision decision = {.admit = true, .why = SIDELONG_NO_VERDICTS};
    bool stale;

    if (!front)
        return decision;
    struct mapping *map = look(front, sidelong_now_ns(), &stale);
    if (!map)
        return decision;
    int index = site_of(map, site);
    decision.why = index < 0 ? SIDELONG_NO_SUCH_SITE : SIDELONG_STALE;
    if (stale || index < 0)
        return decision;
    uint64_t verdict = atomic_load_explicit(&map->choice->site[index].verdict, memory_order_relaxed);
    return sidelong_by_verdict(verdict, map->choice->rotation_ns, client);
}
