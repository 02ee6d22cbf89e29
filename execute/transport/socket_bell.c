/* Bells rung by the sockets of this process. They are watched for changes (edge-triggered): unread
 * data, and sockets that no thread reads, do not ring again. */
#define _GNU_SOURCE /* ppoll */
#include "socket_bell.h"
#include "transport.h"

#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TOLD_LEAST_NS = 50000, /* the longest sleep between polls without a bell: transport.c */
    TOLD_MOST_NS = 10000000,
    SCAN_FIRST_NS = 20000000, /* connections are made when they are first used */
    SCAN_MOST_NS = 1000000000,
    SECOND_NS = 1000000000
};

typedef enum ending { ENDED_OTHERWISE, ENDED_BY_SOCKET, ENDED_BY_TIME } ending;

typedef struct inbox_bell {
    atomic_uint wakes;
    atomic_int is_asleep;
    int woken;   /* eventfd written by a wake */
    int sockets; /* epoll of the process's sockets */
    ending last; /* of the sleep before, unless it was evidence already */
    long told_ns;
    uint64_t scan_at_ns;
    long scan_every_ns;
} inbox_bell;

struct ty_socket_bell {
    inbox_bell inboxes[TY_INBOXES];
};

void ty_socket_bell_close(ty_socket_bell *bell)
{
    for (uint32_t i = 0; bell != NULL && i < TY_INBOXES; i++) {
        if (bell->inboxes[i].woken >= 0)
            close(bell->inboxes[i].woken);
        if (bell->inboxes[i].sockets >= 0)
            close(bell->inboxes[i].sockets);
    }
    ty_free(bell);
}

ty_status ty_socket_bell_open(ty_socket_bell **out, ty_error *error)
{
    ty_socket_bell *bell = ty_alloc(1, sizeof *bell);
    bool is_open = bell != NULL;

    TY_TRY(ty_check_memory(bell != NULL, error));
    for (uint32_t i = 0; i < TY_INBOXES; i++) {
        inbox_bell *own = &bell->inboxes[i];

        own->woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        own->sockets = epoll_create1(EPOLL_CLOEXEC);
        own->told_ns = TOLD_LEAST_NS;
        own->scan_every_ns = SCAN_FIRST_NS;
        is_open = is_open && own->woken >= 0 && own->sockets >= 0;
    }
    if (!is_open) {
        ty_socket_bell_close(bell);
        return ty_fail(error, TY_EBACKEND, "found no files for the bell of this process's sockets");
    }
    *out = bell;
    return TY_OK;
}

uint32_t ty_socket_bell_count(const ty_socket_bell *bell, uint32_t inbox)
{
    return atomic_load(&bell->inboxes[inbox].wakes);
}

void ty_socket_bell_wake(ty_socket_bell *bell, uint32_t inbox)
{
    inbox_bell *own = &bell->inboxes[inbox];
    const uint64_t one = 1;

    atomic_fetch_add(&own->wakes, 1);
    if (atomic_load(&own->is_asleep) != 0 && write(own->woken, &one, sizeof one) < 0)
        return; /* its counter is full: it is ringing */
}

/* ---- The sockets ------------------------------------------------------------------------- */

static bool is_network_socket(int file)
{
    int type = 0, domain = 0;
    socklen_t size = sizeof type;

    return getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
           (domain == AF_INET || domain == AF_INET6);
}

/* Watches the sockets opened since the last call. The system removes closed ones. */
static bool sockets_scan(const inbox_bell *own)
{
    DIR *files = opendir("/proc/self/fd");
    bool is_any_new = false;
    const struct dirent *entry;

    while (files != NULL && (entry = readdir(files)) != NULL) {
        struct epoll_event changes = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
        const int file = (int)strtol(entry->d_name, NULL, 10);

        if (entry->d_name[0] != '.' && is_network_socket(file) &&
            epoll_ctl(own->sockets, EPOLL_CTL_ADD, file, &changes) == 0)
            is_any_new = true;
    }
    if (files != NULL)
        closedir(files);
    return is_any_new;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Scans from time to time, less and less often while nothing is new. */
static void sockets_refresh(inbox_bell *own)
{
    const uint64_t now = now_ns();

    if (now < own->scan_at_ns)
        return;
    if (sockets_scan(own))
        own->scan_every_ns = SCAN_FIRST_NS;
    else if (own->scan_every_ns < SCAN_MOST_NS)
        own->scan_every_ns *= 2;
    own->scan_at_ns = now + (uint64_t)own->scan_every_ns;
}

/* ---- Sleeping ---------------------------------------------------------------------------- */

/* @param count 1: only a wake ends the sleep */
static bool await(inbox_bell *own, nfds_t count, long longest_ns)
{
    struct pollfd files[] = {{.fd = own->woken, .events = POLLIN},
                             {.fd = own->sockets, .events = POLLIN}};
    const struct timespec longest = {.tv_sec = longest_ns / SECOND_NS,
                                     .tv_nsec = longest_ns % SECOND_NS};
    uint64_t wakes;

    if (ppoll(files, count, &longest, NULL) <= 0)
        return false;
    if (files[0].revents != 0 && read(own->woken, &wakes, sizeof wakes) == sizeof wakes)
        return true;
    if (count > 1 && files[1].revents != 0) {
        struct epoll_event news[16];

        while (epoll_wait(own->sockets, news, sizeof news / sizeof news[0], 0) ==
               (int)(sizeof news / sizeof news[0]))
            ;
        own->last = ENDED_BY_SOCKET;
    }
    return true;
}

void ty_socket_bell_sleep(ty_socket_bell *bell, uint32_t inbox, uint32_t seen, long quiet_ns,
                          long longest_ns)
{
    inbox_bell *own = &bell->inboxes[inbox];

    sockets_refresh(own);
    own->last = ENDED_OTHERWISE;
    atomic_store(&own->is_asleep, 1);
    if (atomic_load(&own->wakes) == seen && (quiet_ns <= 0 || !await(own, 1, quiet_ns)) &&
        !await(own, 2, longest_ns > quiet_ns ? longest_ns - quiet_ns : 0))
        own->last = ENDED_BY_TIME;
    atomic_store(&own->is_asleep, 0);
}

void ty_socket_bell_found(ty_socket_bell *bell, uint32_t inbox)
{
    inbox_bell *own = &bell->inboxes[inbox];

    if (own->last == ENDED_BY_SOCKET && own->told_ns < TOLD_MOST_NS)
        own->told_ns *= 2;
    if (own->last == ENDED_BY_TIME && own->told_ns > TOLD_LEAST_NS) {
        own->told_ns /= 2;
        own->scan_at_ns = 0;
    }
    own->last = ENDED_OTHERWISE;
}

long ty_socket_bell_told_ns(const ty_socket_bell *bell, uint32_t inbox)
{
    return bell->inboxes[inbox].told_ns;
}
