/* Segments that the ranks of a host share, and their bells. Their layout: shared_state.h. */
#define _GNU_SOURCE /* memfd_create, seals */
#include "shared_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Interval at which a sleeping rank checks that the others' processes exist. */
static const int64_t check_interval_ns = 500000000;
/* Time for a launcher to end all ranks before a rank itself reports that one is gone. */
static const int64_t launcher_ns = 5000000000;

/* ---- Segments ---------------------------------------------------------------------------- */

static uint64_t segment_bytes(uint32_t members)
{
    return sizeof(shared_segment) + (uint64_t)members * TY_INBOXES * sizeof(shared_ring);
}

shared_ring *shared_ring_of(shared_segment *segment, uint32_t sender, uint32_t inbox)
{
    return &segment->rings[(size_t)sender * TY_INBOXES + inbox];
}

char *shared_slot(shared_box *box, uint32_t slot)
{
    return slot < SMALL_SLOTS ? box->small[slot] : box->large[slot - SMALL_SLOTS];
}

static ty_status system_fail(ty_error *error, const char *what, int code)
{
    return ty_fail(error,
                   code == ENOMEM || code == ENOSPC || code == EFBIG ? TY_ENOMEM : TY_EUNSUPPORTED,
                   "shared memory: %s: %s", what, strerror(code));
}

/* A limit on the size of files applies to these too, and would end the process. */
static bool is_within_limit(uint64_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           limit.rlim_cur >= bytes;
}

/* Allocates all memory here, where running out is an error; on a later access it would be fatal.
 * The seal prevents the others from shrinking the file. */
static ty_status file_make(uint64_t bytes, int *out, ty_error *error)
{
    int file, code;

    if (!is_within_limit(bytes))
        return system_fail(error, "limit on the size of files", EFBIG);
    file = memfd_create("trainyard", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return system_fail(error, "memfd_create", errno);
    code = posix_fallocate(file, 0, (off_t)bytes);
    if (code == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        code = errno;
    if (code != 0) {
        close(file);
        return system_fail(error, "fallocate", code);
    }
    *out = file;
    return TY_OK;
}

static ty_status segment_map(ty_shared_memory *memory, uint32_t member, int file, ty_error *error)
{
    void *mapped = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (mapped == MAP_FAILED)
        return system_fail(error, "mmap", errno);
    memory->segments[member] = mapped;
    return TY_OK;
}

static ty_status state_make(ty_shared_memory *memory, ty_error *error)
{
    bool is_there;

    memory->segments = ty_alloc(memory->member_count, sizeof *memory->segments);
    memory->processes = ty_alloc(memory->member_count, sizeof *memory->processes);
    is_there = memory->segments != NULL && memory->processes != NULL;
    for (uint32_t i = 0; i < TY_INBOXES; i++) {
        inbox_state *inbox = &memory->inboxes[i];

        pthread_mutex_init(&inbox->lock, NULL);
        inbox->channels = ty_alloc(memory->member_count, sizeof *inbox->channels);
        is_there = is_there && inbox->channels != NULL;
    }
    return ty_check_memory(is_there, error);
}

ty_status ty_shared_memory_make(uint32_t members, uint32_t own, ty_shared_memory **out,
                                ty_shared_address *address, ty_error *error)
{
    ty_shared_memory *memory;
    uint32_t check = 0;
    ty_status status;

    if (members > TY_SHARED_MOST_MEMBERS)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "shared memory: found %u ranks on one host, expected at most %u", members,
                       (unsigned)TY_SHARED_MOST_MEMBERS);
    memory = ty_alloc(1, sizeof *memory);
    TY_TRY(ty_check_memory(memory != NULL, error));
    memory->member_count = members;
    memory->own = own;
    memory->bytes = segment_bytes(members);
    memory->file = -1;
    TY_CHECK(state_make(memory, error), status, cleanup);
    TY_CHECK(file_make(memory->bytes, &memory->file, error), status, cleanup);
    TY_CHECK(segment_map(memory, own, memory->file, error), status, cleanup);
    if (getrandom(&check, sizeof check, GRND_NONBLOCK) != (ssize_t)sizeof check)
        check = (uint32_t)getpid();
    check |= 1; /* a file of zeros never matches */
    atomic_store(&memory->segments[own]->check, check);
    *address = (ty_shared_address){getpid(), memory->file, check};
    *out = memory;
    return TY_OK;

cleanup:
    ty_shared_memory_close(memory);
    return status;
}

/* Opens the other process's descriptor again; a different process with the same id may have any
 * file there. */
static ty_status file_open(const ty_shared_memory *memory, const ty_shared_address *address,
                           int *out, ty_error *error)
{
    struct stat found;
    char path[64];
    int file, seals;

    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)address->process, address->file);
    file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return system_fail(error, path, errno);
    seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &found) != 0 ||
        (uint64_t)found.st_size != memory->bytes) {
        close(file);
        return ty_fail(error, TY_EUNSUPPORTED,
                       "shared memory: %s: found another file, expected the segment of a rank",
                       path);
    }
    *out = file;
    return TY_OK;
}

static ty_status member_join(ty_shared_memory *memory, uint32_t member,
                             const ty_shared_address *address, ty_error *error)
{
    int file = -1;
    ty_status status = file_open(memory, address, &file, error);

    if (status != TY_OK)
        return status;
    status = segment_map(memory, member, file, error);
    close(file);
    if (status == TY_OK && atomic_load(&memory->segments[member]->check) != address->check)
        status = ty_fail(error, TY_EUNSUPPORTED,
                         "shared memory: process %lld is another one here than where the rank says "
                         "so",
                         (long long)address->process);
    return status;
}

ty_status ty_shared_memory_join(ty_shared_memory *memory, const ty_shared_address *addresses,
                                ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t m = 0; m < memory->member_count && status == TY_OK; m++) {
        memory->processes[m] = addresses[m].process;
        if (m != memory->own)
            status = member_join(memory, m, &addresses[m], error);
    }
    return status;
}

void ty_shared_memory_seal(ty_shared_memory *memory)
{
    close(memory->file);
    memory->file = -1;
}

static void requests_free(shared_request *list)
{
    while (list != NULL) {
        shared_request *next = list->next;
        ty_free(list->kept);
        ty_free(list);
        list = next;
    }
}

void ty_shared_memory_close(ty_shared_memory *memory)
{
    if (memory == NULL)
        return;
    for (uint32_t i = 0; i < TY_INBOXES; i++) {
        inbox_state *inbox = &memory->inboxes[i];

        /* Posted receives belong to their callers. */
        for (uint32_t m = 0; inbox->channels != NULL && m < memory->member_count; m++)
            requests_free(inbox->channels[m].early);
        ty_free(inbox->channels);
        pthread_mutex_destroy(&inbox->lock);
    }
    for (uint32_t m = 0; memory->segments != NULL && m < memory->member_count; m++)
        if (memory->segments[m] != NULL)
            munmap(memory->segments[m], memory->bytes);
    if (memory->file >= 0)
        close(memory->file);
    ty_free(memory->segments);
    ty_free(memory->processes);
    ty_free(memory);
}

/* ---- Bells ------------------------------------------------------------------------------- */

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *longest)
{
    return syscall(SYS_futex, (uint32_t *)word, what, value, longest, NULL, 0);
}

/* A thread sets `is_asleep` before the system compares `rings` with the count it has seen. A ringer
 * increments `rings` before it reads `is_asleep`. So one of the two notices the other. */
void shared_bell_ring(shared_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->is_asleep) != 0 && atomic_exchange(&bell->is_asleep, 0) != 0)
        futex(&bell->rings, FUTEX_WAKE, INT_MAX, NULL);
}

static shared_bell *own_bell(const ty_shared_memory *memory, uint32_t inbox)
{
    return &memory->segments[memory->own]->boxes[inbox].bell;
}

uint32_t ty_shared_bell(const ty_shared_memory *memory, uint32_t inbox)
{
    return atomic_load(&own_bell(memory, inbox)->rings);
}

void ty_shared_wake(ty_shared_memory *memory, uint32_t inbox)
{
    shared_bell_ring(own_bell(memory, inbox));
}

void shared_members_check(ty_shared_memory *memory)
{
    const int64_t now_ns = (int64_t)(ty_now_s() * 1e9);

    if (now_ns - atomic_load(&memory->checked_ns) < check_interval_ns)
        return;
    atomic_store(&memory->checked_ns, now_ns);
    for (uint32_t m = 0; m < memory->member_count; m++) {
        int64_t never = 0;
        if (kill((pid_t)memory->processes[m], 0) == 0 || errno != ESRCH)
            continue;
        atomic_compare_exchange_strong(&memory->missed_ns, &never, now_ns);
        if (now_ns - atomic_load(&memory->missed_ns) >= launcher_ns)
            atomic_store(&memory->lost, m + 1);
    }
}

void ty_shared_sleep(ty_shared_memory *memory, uint32_t inbox, uint32_t seen, long longest_ns)
{
    enum { LONGEST_NS = 100000000 };
    const struct timespec longest = {.tv_nsec = longest_ns < LONGEST_NS ? longest_ns : LONGEST_NS};
    shared_bell *bell = own_bell(memory, inbox);

    atomic_store(&bell->is_asleep, 1);
    if (futex(&bell->rings, FUTEX_WAIT, seen, &longest) != 0 && errno == ETIMEDOUT)
        shared_members_check(memory);
}
