/* State shared by the state machines of a collective. Private to collective*.c. */
#ifndef TY_EXECUTE_COLLECTIVE_STATE_H
#define TY_EXECUTE_COLLECTIVE_STATE_H

#include "transport.h"

enum {
    COLLECTIVE_WINDOW = 4,        /* pieces in flight in each direction */
    MOST_TREE_MOVES = 2 * 32 + 2, /* up and down, of 2^32 members */
    MOST_PHASES = 3               /* of a hierarchical all-reduce */
};

typedef struct element_type {
    uint64_t size;
    ty_add add; /* NULL: cannot be summed */
} element_type;

typedef struct tree_move {
    uint32_t peer; /* member index */
    bool is_send, is_sum;
} tree_move;

/* One message of a sequence of pieces: elements of `data`, to or from a member. */
typedef struct collective_piece {
    uint32_t peer; /* member index */
    uint64_t first, count;
} collective_piece;

/* The schedule of pieces: a ring, or all-to-all. */
typedef struct piece_order {
    collective_piece (*outgoing)(const ty_collective *collective, uint64_t index);
    collective_piece (*incoming)(const ty_collective *collective, uint64_t index);
    /* Whether the next piece may be sent, or received, after the messages so far. */
    bool (*may_send)(const ty_collective *collective);
    bool (*may_receive)(const ty_collective *collective);
} piece_order;

struct ty_collective {
    ty_transport *transport;
    ty_element element;
    const element_type *type;
    uint32_t *members; /* [member_count] ranks, followed by dedicated servers */
    uint32_t member_count, position;
    uint32_t tag;
    char *data;
    uint64_t count;
    bool is_reduce;      /* some rounds add */
    bool is_of_shares;   /* chunks are shards of `count`, else `count` elements each */
    uint32_t sum_rounds; /* of pieces: rounds that add come first */
    uint32_t copy_rounds;
    uint32_t ahead; /* ring: chunks from member p's first one to the p-th */
    char *scratch;  /* received data to be added: a window of pieces, or one message of a tree */
    ty_status (*advance)(ty_collective *collective, bool *is_moved, ty_error *error);

    /* Pieces: `rounds` * `pieces_per_round` each way, sent, received and finished in order. */
    const piece_order *order;
    uint64_t pieces_per_round, piece_count, piece_elements;
    collective_piece *listed; /* [piece_count] with dedicated servers: sent, and received */
    uint64_t sends_started, sends_done, receives_started, receives_done;
    ty_request *sends[COLLECTIVE_WINDOW], *receives[COLLECTIVE_WINDOW];

    /* Tree. */
    uint32_t move_count, moves_done;
    tree_move moves[MOST_TREE_MOVES];
    ty_request *move_request;

    /* All-to-all: in round k a part goes to the k-th member after this one. */
    uint32_t round_count, rounds_done;
    bool is_round_started;
    ty_request *round_send, *round_receive;
    /* Unequal counts: see ty_collective_options. */
    const uint64_t *sent_counts, *received_counts;
    char *received;

    /* Hierarchy: collectives one after the other. */
    uint32_t phase_count, phases_done;
    ty_collective_options phases[MOST_PHASES];
    uint32_t *groups; /* ranks: those of this host, then one of each host */
    ty_collective *running;
};

const element_type *collective_element(ty_element element);

/* Position in the sequence of a server's pieces; zero it to begin. */
typedef struct server_walk {
    uint32_t part, piece;
} server_walk;
/* The server's next piece of a bucket, the same on both of its ends; false: there is none. */
bool collective_server_piece(const ty_server_part *parts, uint32_t part_count,
                             uint64_t element_bytes, uint32_t server, server_walk *at,
                             uint64_t *first, uint64_t *count);

/* Removes a finished request; `is_done` is false if it is still in flight. */
ty_status collective_test_request(ty_collective *collective, ty_request **request, bool *is_done,
                                  ty_error *error) TY_MUST_CHECK;

/* Each prepares its state machine and returns the elements of scratch that it needs. */
uint64_t collective_ring_prepare(ty_collective *collective);
uint64_t collective_servers_prepare(ty_collective *collective);
ty_status collective_listed_prepare(ty_collective *collective, const ty_collective_options *options,
                                    ty_error *error) TY_MUST_CHECK;

#endif
