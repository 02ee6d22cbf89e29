/* Layout of the segments, and a member's private state. Private to shared_*.c. */
#ifndef TY_EXECUTE_SHARED_STATE_H
#define TY_EXECUTE_SHARED_STATE_H

#include "shared_memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LINE_BYTES = 64, /* of a cache */
    /* Slots stay in a core's own cache; copying a large one takes as long as about twenty
     * announcements. */
    SMALL_BYTES = 4096,
    LARGE_BYTES = 64 * 1024,
    SMALL_SLOTS = 32,
    LARGE_SLOTS = 24, /* a window of pieces of collectives, and half as much */
    SLOTS = SMALL_SLOTS + LARGE_SLOTS,
    RING_LENGTH = 64 /* every fragment in a ring occupies a slot, so that a ring is never full */
};
_Static_assert(RING_LENGTH >= SLOTS, "a ring has room for all fragments of a member");
_Static_assert((RING_LENGTH & (RING_LENGTH - 1)) == 0, "counters may wrap");

typedef struct shared_bell {
    _Alignas(LINE_BYTES) _Atomic uint32_t rings;
    _Atomic uint32_t is_asleep;
    _Alignas(LINE_BYTES) _Atomic uint32_t is_starved; /* the owner waits for slots of its own */
} shared_bell;

/* Slots of one inbox of the segment's owner: they hold its sends until the receiver takes them. */
typedef struct shared_box {
    shared_bell bell;
    _Alignas(LINE_BYTES) _Atomic uint8_t is_taken[SLOTS];
    _Alignas(4096) char small[SMALL_SLOTS][SMALL_BYTES];
    char large[LARGE_SLOTS][LARGE_BYTES];
} shared_box;

/* Part of a message, and the slot of its sender that holds it. */
typedef struct shared_fragment {
    uint32_t tag, slot;
    uint64_t message_bytes;
    uint64_t bytes;
} shared_fragment;

/* Fragments from one member to the segment's owner. */
typedef struct shared_ring {
    _Alignas(LINE_BYTES) _Atomic uint32_t put;   /* by the sender */
    _Alignas(LINE_BYTES) _Atomic uint32_t taken; /* by the owner */
    _Alignas(LINE_BYTES) shared_fragment fragments[RING_LENGTH];
} shared_ring;

typedef struct shared_segment {
    _Atomic uint32_t check;
    shared_box boxes[TY_INBOXES];
    shared_ring rings[]; /* [members][TY_INBOXES] */
} shared_segment;

typedef struct shared_request {
    int path; /* TY_REQUEST_SHARED */
    bool is_send;
    bool is_asked; /* a receive is posted for it */
    bool is_over;  /* all sent, or all received */
    bool is_bad;   /* of another size than expected, or canceled: its data is dropped */
    uint32_t member, inbox, tag;
    uint64_t bytes;   /* to send, or expected */
    const char *from; /* of a send */
    char *to;         /* of a receive */
    ty_add add;
    uint64_t element_bytes;
    uint64_t found_bytes; /* of the arriving message */
    uint64_t moved;       /* sent, or taken out of the ring; */
    uint64_t placed;      /* of these, copied or added to the target; the others are in */
    char *kept;           /* [found_bytes], or NULL */
    struct shared_request *next;
} shared_request;

/* Messages from and to one member, in one inbox. */
typedef struct channel {
    shared_request *sends;    /* not all sent yet, oldest first */
    shared_request *receives; /* without any data yet, oldest first */
    shared_request *early;    /* arrived, or arriving, before a receive; oldest first */
    shared_request *arriving; /* whose next fragment is the ring's next */
} channel;

typedef struct inbox_state {
    pthread_mutex_t lock;
    channel *channels;      /* [members] */
    uint32_t waiting_count; /* sends that are not all sent yet */
} inbox_state;

struct ty_shared_memory {
    uint32_t member_count, own;
    int file;
    uint64_t bytes;            /* of each segment */
    shared_segment **segments; /* [members]; NULL: not mapped */
    int64_t *processes;        /* [members] */
    inbox_state inboxes[TY_INBOXES];
    _Atomic uint32_t lost;      /* 1 + a member whose process is gone; 0: none */
    _Atomic int64_t checked_ns; /* time of the last check */
    _Atomic int64_t missed_ns;  /* time at which one was found gone; 0: none */
};

/* Wakes the thread that sleeps at the bell. */
void shared_bell_ring(shared_bell *bell);
/* Checks from time to time that all members' processes exist. A killed one does not ring, and not
 * every launcher ends the others. */
void shared_members_check(ty_shared_memory *memory);
/* Address of a slot of a box. */
char *shared_slot(shared_box *box, uint32_t slot);
shared_ring *shared_ring_of(shared_segment *segment, uint32_t sender, uint32_t inbox);

#endif
