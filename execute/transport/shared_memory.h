/**
 * @file shared_memory.h
 * Messages between the ranks of one host through shared memory, and bells that wake threads that
 * sleep for them. The "mpi" transport uses it inside a host, and MPI between hosts. Internal to
 * execute/; Linux.
 *
 * Every member creates a segment and maps those of the others. The segment comes from memfd_create
 * and has no name, so nothing is left however the members end, and no limit of /dev/shm applies. A
 * message is cut into fragments of up to 64 KiB. The sender copies each into a slot of its own
 * segment and announces it in a ring of the receiver's. The receiver copies it from the slot, or
 * adds it to the target. So a send ends as soon as it is copied, unless slots run out.
 *
 *     TY_CHECK(ty_shared_memory_make(n, own, &memory, &addresses[own], error), status, done);
 *     ... all members send each other their addresses ...
 *     TY_CHECK(ty_shared_memory_join(memory, addresses, error), status, done);
 *     ty_shared_send(memory, &(ty_shared_message){.member = 1, .tag = 7, ...}, &request, error);
 *
 * Messages of one member with equal tags arrive in order. Any test advances all messages of its
 * inbox, so that posted receives complete in any order of tests. One thread at a time uses an
 * inbox, without waiting for the threads of other inboxes.
 */
#ifndef TY_EXECUTE_SHARED_MEMORY_H
#define TY_EXECUTE_SHARED_MEMORY_H

#include "transport.h"

typedef struct ty_shared_memory ty_shared_memory;

/** Address that a member sends to the others of its host, which must see it under the same process
 * id. */
typedef struct ty_shared_address {
    int64_t process;
    int32_t file;   /* descriptor of the segment there */
    uint32_t check; /* also stored in the segment, to detect a wrong file or process */
} ty_shared_address;

/** Most ranks of a host that share memory: each maps the segments of all. */
enum { TY_SHARED_MOST_MEMBERS = 64 };

/**
 * Creates this rank's segment, of about 4 MiB, and allocates its memory at once.
 * @return TY_ENOMEM: not enough memory; TY_EUNSUPPORTED: the system does not support it. Nothing is
 *         allocated then
 */
ty_status ty_shared_memory_make(uint32_t members, uint32_t own, ty_shared_memory **out,
                                ty_shared_address *address, ty_error *error) TY_MUST_CHECK;
/** Maps the others' segments; the files may be closed when all have joined (ty_shared_memory_seal).
 * @param addresses [members] */
ty_status ty_shared_memory_join(ty_shared_memory *memory, const ty_shared_address *addresses,
                                ty_error *error) TY_MUST_CHECK;
/** All members have joined: from now on no other process can. */
void ty_shared_memory_seal(ty_shared_memory *memory);
void ty_shared_memory_close(ty_shared_memory *memory); /* NULL is ignored */

typedef struct ty_shared_message {
    uint32_t member, tag;
    const void *from; /* of a send; unchanged until it is done */
    void *to;         /* of a receive */
    uint64_t bytes;
    ty_add add; /* of a receive: adds the data to `to`, when its request is tested; NULL: the data
                   is copied there as soon as it arrives */
    uint64_t element_bytes; /* of the numbers to add */
} ty_shared_message;

ty_status ty_shared_send(ty_shared_memory *memory, const ty_shared_message *message,
                         ty_request **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_shared_receive(ty_shared_memory *memory, const ty_shared_message *message,
                            ty_request **out, ty_error *error) TY_MUST_CHECK;
/** Like a transport's; fails if a member's process is gone. */
ty_status ty_shared_test(ty_shared_memory *memory, ty_request *request, bool *is_done,
                         ty_error *error) TY_MUST_CHECK;
void ty_shared_cancel(ty_shared_memory *memory, ty_request *request);
/** Requests of a transport that also has other kinds begin with an int: this, or another. */
enum { TY_REQUEST_SHARED = 1 };

/** Like a transport's. */
uint32_t ty_shared_bell(const ty_shared_memory *memory, uint32_t inbox);
void ty_shared_sleep(ty_shared_memory *memory, uint32_t inbox, uint32_t seen, long longest_ns);
void ty_shared_wake(ty_shared_memory *memory, uint32_t inbox);

#endif
