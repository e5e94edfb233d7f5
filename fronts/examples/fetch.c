/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A client that is controlled: fetch PREFIX SITE HOST ADDRESS:PORT... asks the front, whose dir and name PREFIX is, which of these
 * servers is to get a request, sends it one for HOST, and prints the answer. fetch.py is the same in Python.
 *
 *     cc fetch.c $(pkg-config --cflags --libs sidelong) -o fetch
 *     ./fetch /run/sidelong/web1 alpha alpha.example 10.0.0.1:8080 10.0.0.2:8080
 */
#include <sidelong.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVERS_MAX 64
/* Servers that one request may be sent to. */
#define ATTEMPTS 3

struct servers {
    int count;
    struct sockaddr_in at[SERVERS_MAX];
    int node[SERVERS_MAX]; /* -1: no node of the cluster */
};

static int server_of(const struct servers *servers, unsigned node)
{
    for (int i = 0; i < servers->count; i++)
        if (servers->node[i] == (int)node)
            return i;
    return -1;
}

static bool is_usable(void *context, unsigned node)
{
    return server_of(context, node) >= 0;
}

/* Sends a request and copies the answer to standard output. Returns the status; 0 without an answer, -1 if refused. */
static int fetch(const struct sockaddr_in *at, const char *host)
{
    char text[4096];
    int status = 0;
    int server = socket(AF_INET, SOCK_STREAM, 0);

    if (server < 0 || connect(server, (const struct sockaddr *)at, sizeof(*at)) != 0) {
        if (server >= 0)
            close(server);
        return -1;
    }
    int length = snprintf(text, sizeof(text), "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host);

    if (write(server, text, (size_t)length) == length) {
        ssize_t got;

        while ((got = read(server, text, sizeof(text) - 1)) > 0) {
            text[got] = 0;
            if (!status)
                status = strncmp(text, "HTTP/1.", 7) == 0 ? atoi(text + 9) : 0;
            fwrite(text, 1, (size_t)got, stdout);
        }
    }
    close(server);
    return status;
}

int main(int count, char **words)
{
    char why[SIDELONG_WHY_BYTES];
    struct servers servers = {0};

    if (count < 5 || count - 4 > SERVERS_MAX) {
        fprintf(stderr, "usage: fetch PREFIX SITE HOST ADDRESS:PORT...\n");
        return 2;
    }
    sidelong_front *front = sidelong_front_open(words[1], why);

    if (!front || *why) {
        fprintf(stderr, "fetch: %s\n", why);
        return 1;
    }
    /* A program that stays looks its servers up again when sidelong_generation changes. */
    for (int i = 4; i < count; i++) {
        struct sockaddr_in *at = &servers.at[servers.count];
        char *port = strrchr(words[i], ':');

        if (port)
            *port++ = 0;
        *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)(port ? atoi(port) : 0))};
        if (!port || inet_pton(AF_INET, words[i], &at->sin_addr) != 1) {
            fprintf(stderr, "fetch: %s is no ADDRESS:PORT\n", words[i]);
            return 2;
        }
        servers.node[servers.count++] = sidelong_node(front, (const struct sockaddr *)at);
    }
    sidelong_site site = {.name = words[2]};

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        sidelong_request request = {0};

        /* SIDELONG_ALONE, too: a client that stays would choose among the nodes that sidelong_begin takes. */
        if (sidelong_choose(front, &site, is_usable, &servers, &request) != SIDELONG_CHOSEN)
            break;
        int status = fetch(&servers.at[server_of(&servers, request.node)], words[3]);

        if (status > 0)
            sidelong_answered(&request, status < 400);
        else
            sidelong_failed(&request, status < 0);
        sidelong_ended(&request);
        if (status >= 0)
            return status ? 0 : 1;
    }
    fprintf(stderr, "fetch: no server of %s is usable\n", words[2]);
    return 1;
}
