/**
 * @file shared_memory.h
 * Messages between the ranks of one host through memory that they share, and bells that wake who
 * sleeps for them. The "mpi" transport takes this way inside a host; between hosts it keeps MPI.
 * Internal to execute/; Linux.
 *
 * Every member makes a segment (memfd_create: it has no name anywhere, so nothing is left however
 * the members end, and no limit of /dev/shm applies) and maps those of the others. A message is cut
 * into fragments of up to 64 KiB: the sender copies each into a slot of its own segment and
 * announces it in a ring of the receiver's; the receiver copies it out, or adds it where it
 * belongs. So a message is away as soon as it is copied, unless slots run out.
 *
 *     TY_CHECK(ty_shared_memory_make(n, own, &memory, &addresses[own], error), status, done);
 *     ... all members tell each other their addresses ...
 *     TY_CHECK(ty_shared_memory_join(memory, addresses, error), status, done);
 *     ty_shared_send(memory, &(ty_shared_message){.member = 1, .tag = 7, ...}, &request, error);
 *
 * Messages of one member with equal tags arrive in order. Any test advances everything of its
 * inbox, so that no order of tests keeps messages from arriving that were asked for. Each inbox is
 * used by one thread at a time without waiting for those of the others.
 */
#ifndef TY_EXECUTE_SHARED_MEMORY_H
#define TY_EXECUTE_SHARED_MEMORY_H

#include "transport.h"

typedef struct ty_shared_memory ty_shared_memory;

/** What a member tells the others of its host, who must see it under the same process id. */
typedef struct ty_shared_address {
    int64_t process;
    int32_t file;   /* descriptor of the segment there */
    uint32_t check; /* found again in the segment: no other file of another process */
} ty_shared_address;

/** More than this many on one host do not share memory: each maps the segments of all. */
enum { TY_SHARED_MOST_MEMBERS = 64 };

/**
 * Makes the own segment, of about 4 MiB, and takes its memory from the system at once.
 * @return TY_ENOMEM, TY_EUNSUPPORTED: there is not so much, or not this way; nothing is left
 */
ty_status ty_shared_memory_make(uint32_t members, uint32_t own, ty_shared_memory **out,
                                ty_shared_address *address, ty_error *error) TY_MUST_CHECK;
/** Maps the others' segments; the files may be closed when all have joined (ty_shared_memory_seal).
 * @param addresses [members] */
ty_status ty_shared_memory_join(ty_shared_memory *memory, const ty_shared_address *addresses,
                                ty_error *error) TY_MUST_CHECK;
/** All members have joined: from here on nobody else can. */
void ty_shared_memory_seal(ty_shared_memory *memory);
void ty_shared_memory_close(ty_shared_memory *memory); /* NULL is ignored */

typedef struct ty_shared_message {
    uint32_t member, tag;
    const void *from; /* of a send; untouched until it is done */
    void *to;         /* of a receive */
    uint64_t bytes;
    ty_add add; /* of a receive: what comes is added to `to`, when its request is tested; NULL: it
                   is copied there as soon as it comes */
    uint64_t element_bytes; /* of what is added */
} ty_shared_message;

ty_status ty_shared_send(ty_shared_memory *memory, const ty_shared_message *message,
                         ty_request **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_shared_receive(ty_shared_memory *memory, const ty_shared_message *message,
                            ty_request **out, ty_error *error) TY_MUST_CHECK;
/** As a transport's; a member whose process is gone fails it. */
ty_status ty_shared_test(ty_shared_memory *memory, ty_request *request, bool *is_done,
                         ty_error *error) TY_MUST_CHECK;
void ty_shared_cancel(ty_shared_memory *memory, ty_request *request);
/** Requests of a transport that has others beside these begin with an int: this, or another. */
enum { TY_REQUEST_SHARED = 1 };

/** As a transport's. */
uint32_t ty_shared_bell(const ty_shared_memory *memory, uint32_t inbox);
void ty_shared_sleep(ty_shared_memory *memory, uint32_t inbox, uint32_t seen, long longest_ns);
void ty_shared_wake(ty_shared_memory *memory, uint32_t inbox);

#endif
