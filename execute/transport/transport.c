/* Functions common to all transports: sleeping waits, blocking messages, barrier, and agreement on
 * a failure. */
#include "transport.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    POLLS = 4, /* a message that is about to arrive costs no sleep */
    SHORTEST_NS = 5000,
    LONGEST_NS = 50000,
    STEP_NS = 5000,
    UNTIL_RUNG_NS = 100000000, /* longer than any message without a ring takes */
    /* Tags of set-up messages; programs use other classes, see interpreter_state.h. */
    BARRIER_TAG = 1,
    AGREE_TAG = 2
};

/* Never sched_yield: under Linux's EEVDF scheduler the thread then waits a full slice for those
 * that compute on the same core (median 2 ms, against 33 us for a sleep of 5 us). */
long ty_backoff_next(ty_backoff *backoff)
{
    long delay;

    if (backoff->rounds < UINT32_MAX)
        backoff->rounds++;
    if (backoff->rounds <= POLLS)
        return 0;
    delay = SHORTEST_NS;
    if (backoff->rounds - POLLS < LONGEST_NS / STEP_NS)
        delay += (long)(backoff->rounds - POLLS - 1) * STEP_NS;
    else
        delay = LONGEST_NS;
    return delay;
}

void ty_backoff_wait(ty_backoff *backoff)
{
    long delay = ty_backoff_next(backoff);

    if (delay > 0)
        nanosleep(&(struct timespec){.tv_nsec = delay}, NULL);
}

uint32_t ty_transport_bell(ty_transport *transport, uint32_t inbox)
{
    return transport->bell != NULL ? transport->bell(transport, inbox) : 0;
}

long ty_transport_told_ns(const ty_transport *transport, uint32_t inbox, long delay_ns)
{
    const long told = transport->told_ns != NULL ? transport->told_ns(transport, inbox) : 0;

    return told > delay_ns ? told : delay_ns;
}

void ty_backoff_rest(ty_backoff *backoff, ty_transport *transport, uint32_t inbox, uint32_t seen,
                     bool is_long)
{
    long delay;

    if (transport->sleep == NULL) {
        ty_backoff_wait(backoff);
        return;
    }
    delay = ty_backoff_next(backoff);
    if (delay > 0)
        transport->sleep(transport, inbox, seen, delay,
                         is_long && transport->rings_always
                             ? UNTIL_RUNG_NS
                             : ty_transport_told_ns(transport, inbox, delay));
}

static ty_status wait_for(ty_transport *transport, uint32_t tag, ty_request *request,
                          ty_error *error)
{
    const uint32_t inbox = ty_tag_inbox(tag);
    ty_backoff backoff = {0};
    bool is_done = false;

    for (;;) {
        const uint32_t seen = ty_transport_bell(transport, inbox);
        ty_status status = transport->test(transport, request, &is_done, error);

        if (status != TY_OK || is_done)
            return status;
        ty_backoff_rest(&backoff, transport, inbox, seen, true);
    }
}

ty_status ty_transport_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                            uint64_t bytes, ty_error *error)
{
    ty_request *request = NULL;
    ty_status status = transport->send(transport, to, tag, buffer, bytes, &request, error);

    return status == TY_OK ? wait_for(transport, tag, request, error) : status;
}

ty_status ty_transport_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                               uint64_t bytes, ty_error *error)
{
    ty_request *request = NULL;
    ty_status status = transport->receive(transport, from, tag, buffer, bytes, &request, error);

    return status == TY_OK ? wait_for(transport, tag, request, error) : status;
}

ty_status ty_collective_run(ty_transport *transport, const ty_collective_options *options,
                            ty_error *error)
{
    const uint32_t inbox = ty_tag_inbox(options->tag);
    ty_collective *collective = NULL;
    ty_backoff backoff = {0};
    bool is_done = false;
    ty_status status = ty_collective_start(transport, options, &collective, error);

    while (status == TY_OK && !is_done) {
        const uint32_t seen = ty_transport_bell(transport, inbox);
        bool is_moved = false;

        status = ty_collective_test(collective, &is_done, &is_moved, error);
        if (status != TY_OK) {
            ty_collective_cancel(collective);
        } else if (is_moved) {
            backoff.rounds = 0;
        } else if (!is_done) {
            ty_backoff_rest(&backoff, transport, inbox, seen, true);
        }
    }
    return status;
}

ty_status ty_transport_barrier(ty_transport *transport, ty_error *error)
{
    double nothing = 0;

    return ty_collective_run(transport,
                             &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                      .algorithm = TY_TREE,
                                                      .member_count = transport->size,
                                                      .data = &nothing,
                                                      .count = 1,
                                                      .element = TY_ELEMENT_DOUBLE,
                                                      .tag = BARRIER_TAG},
                             error);
}

/* Gathers all ranks' statuses, which suffices if none failed; then the messages, and returns
 * that of the lowest failed rank. */
ty_status ty_transport_agree(ty_transport *transport, ty_status status, ty_error *error)
{
    ty_status agreed = TY_OK;
    ty_collective_options options = {.kind = TY_ALL_GATHER,
                                     .member_count = transport->size,
                                     .count = 1,
                                     .element = TY_ELEMENT_BYTE,
                                     .tag = AGREE_TAG};
    uint8_t *statuses = ty_alloc(transport->size, 1);
    ty_error *errors = NULL;
    uint32_t i;

    TY_TRY(ty_check_memory(statuses != NULL, error));
    statuses[transport->rank] = (uint8_t)status;
    options.data = statuses;
    TY_CHECK(ty_collective_run(transport, &options, error), agreed, cleanup);
    for (i = 0; i < transport->size && statuses[i] == TY_OK; i++) {
    }
    if (i == transport->size)
        goto cleanup;

    errors = ty_alloc(transport->size, sizeof *errors);
    TY_CHECK(ty_check_memory(errors != NULL, error), agreed, cleanup);
    if (error != NULL)
        errors[transport->rank] = *error;
    options.data = errors;
    options.count = sizeof *errors;
    TY_CHECK(ty_collective_run(transport, &options, error), agreed, cleanup);
    errors[i].message[sizeof errors[i].message - 1] = '\0';
    agreed = ty_fail(error, (ty_status)statuses[i], "%s", errors[i].message);

cleanup:
    ty_free(statuses);
    ty_free(errors);
    return agreed;
}
