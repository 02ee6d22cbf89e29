/* Chains of states with devices given out along them: what PipeDream's levels and the flat search
 * have in common. A chain leads from a first state to others; its m-th position stands for the
 * first m units of something. A choice says how a part that ends at a position may be run. */
#ifndef TY_CHAINS_H
#define TY_CHAINS_H

#include "ty_partition.h"

#include <math.h>

typedef struct chain_choice {
    uint32_t positions;    /* that it takes, the last ones before where it ends */
    uint32_t level, units; /* as in ty_division_part */
    bool is_first;         /* only as the first part; others never are */
    double share;          /* of the unit's time: 1 / units */
    double exchange_s;     /* per byte of parameters */
    double in_s, out_s;    /* per byte of the cut before and behind; 0: free */
    double in_flight;      /* what PipeDream's memory check multiplies with */
    double devices;        /* all it takes */
    const double *unit_s;  /* [state `to`][state `from`] seconds in a unit; NULL: compute time */
} chain_choice;

typedef struct chain_problem {
    const ty_states *states;
    const ty_divide_options *options;
    uint32_t positions;
    double position_devices;
    uint32_t *starts; /* [positions + 2] choices of those that end at position m */
    chain_choice *choices;
    uint32_t choice_count, choice_capacity;
} chain_problem;

/** Starts the list of choices for position m; call for 1, 2, ... and then `positions + 1`. */
void ty_chain_begin(chain_problem *problem, uint32_t position);
ty_status ty_chain_add(chain_problem *problem, const chain_choice *choice,
                       ty_error *error) TY_MUST_CHECK;
ty_status ty_chain_make(chain_problem *problem, ty_error *error) TY_MUST_CHECK;
void ty_chain_clear(chain_problem *problem);

/** States from one to another, in order, with what the search reads of them side by side. */
typedef struct chain_row {
    const chain_problem *problem;
    uint32_t from, to, count;
    uint32_t *states; /* states[0] is `from`, the last one `to` */
    double *compute_s, *parameter_bytes, *activation_bytes, *output_bytes;
    double *time_s;  /* [positions + 1][count]; HUGE_VAL: none */
    uint32_t *hints; /* [choices] where the last search began */
} chain_row;
ty_status ty_chain_row_make(const chain_problem *problem, uint32_t most_states, chain_row *row,
                            ty_error *error) TY_MUST_CHECK;
void ty_chain_row_clear(chain_row *row);
/** Takes up the states between two; `to` contains `from`. */
void ty_chain_row_set(chain_row *row, uint32_t from, uint32_t to);
/** Fills time_s. */
void ty_chain_row_solve(chain_row *row);

/** Time of a part, and what its cuts take; places are indices of row->states. */
static inline double chain_part_s(const chain_row *row, const chain_choice *choice, uint32_t from,
                                  uint32_t to)
{
    const ty_states *s = row->problem->states;
    double unit =
        choice->unit_s == NULL
            ? row->compute_s[to] - row->compute_s[from]
            : choice->unit_s[(size_t)row->states[to] * s->ideals->count + row->states[from]];
    return unit * choice->share +
           (row->parameter_bytes[to] - row->parameter_bytes[from]) * choice->exchange_s;
}

static inline double *chain_time(const chain_row *row, uint32_t position, uint32_t place)
{
    return &row->time_s[(size_t)position * row->count + place];
}

static inline bool chain_has(const chain_row *row, uint32_t part, uint32_t whole)
{
    const ty_states *s = row->problem->states;
    uint32_t bit = row->states[part];
    return (s->inside[(size_t)row->states[whole] * s->row_words + bit / 64] >> (bit % 64) & 1) != 0;
}

/** Bytes that PipeDream's check takes a device of the part to hold. */
static inline double chain_stash(const chain_row *row, uint32_t from, uint32_t to, double in_flight)
{
    return in_flight * (row->activation_bytes[to] - row->activation_bytes[from] +
                        row->parameter_bytes[to] - row->parameter_bytes[from]);
}

static inline bool chain_fits(const chain_row *row, const chain_choice *choice, uint32_t from,
                              uint32_t to)
{
    double limit = row->problem->options->memory_bytes;
    return limit == 0 || chain_stash(row, from, to, choice->in_flight) <= limit;
}

/** Whether the cut behind a place costs anything: not behind the last layer. */
static inline double chain_out_s(const chain_row *row, const chain_choice *choice, uint32_t place)
{
    if (row->states[place] + 1 == row->problem->states->ideals->count)
        return 0;
    return row->output_bytes[place] * choice->out_s;
}

/** One part of the best chain, as traced from its end. */
typedef struct chain_link {
    uint32_t choice, from, to; /* index of the choice; states */
    uint32_t position;         /* where it begins */
    double time_s;
} chain_link;

/**
 * The chain from row->from to row->to whose time is at most `limit_s`, ties broken as
 * ty_divide_hierarchical documents. There must be one.
 * @param links [out, positions] first to last
 */
ty_status ty_chain_row_trace(const chain_row *row, double limit_s, chain_link *links,
                             uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** Part of the bound's slack for rounding: sums of a few thousand terms err less. */
#define CHAIN_SLACK (1 + 1e-9)

/* ---- Levels, in hierarchical.c ----------------------------------------------------------- */

/** The hierarchy's tables: times of whole units of every level but the lowest. */
typedef struct hierarchy {
    const ty_states *states;
    const ty_divide_options *options;
    chain_problem problems[TY_MOST_LEVELS];
    double *unit_s[TY_MOST_LEVELS]; /* [level][to][from] one unit of that level; [0] is NULL */
    double time_s;                  /* all layers on all devices; HUGE_VAL: nothing fits */
    uint32_t unit_devices[TY_MOST_LEVELS + 1];
} hierarchy;
ty_status ty_hierarchy_solve(const ty_states *states, const ty_divide_options *options,
                             hierarchy *out, ty_error *error) TY_MUST_CHECK;
void ty_hierarchy_clear(hierarchy *h);

/** A division being put together. */
typedef struct division_parts {
    ty_division_part *parts;
    uint32_t count, capacity;
} division_parts;
/** Appends the parts of the best chain of a problem, and theirs below. */
ty_status ty_hierarchy_trace(const hierarchy *h, const chain_problem *problem, double limit_s,
                             const ty_division_part *whole, uint32_t whole_index,
                             division_parts *parts, ty_error *error) TY_MUST_CHECK;
/** Makes the answer of the parts, which it takes over. */
ty_status ty_hierarchy_answer(const hierarchy *h, double time_s, division_parts *parts,
                              ty_division **out, ty_error *error) TY_MUST_CHECK;
/** TY_EINFEASIBLE, with how much the memory limit is missed by. */
ty_status ty_hierarchy_fail(const hierarchy *h, ty_error *error);

#endif
