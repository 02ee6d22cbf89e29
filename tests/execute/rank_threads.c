#include "rank_threads.h"

static void *rank_main(void *argument)
{
    rank_thread *rank = argument;

    rank->status = rank->function(rank->transport, &rank->error);
    rank->transport->is_broken = rank->transport->is_broken || rank->status != TY_OK;
    rank->transport->close(rank->transport);
    return NULL;
}

ty_status rank_threads_run(ty_transport *const *transports, uint32_t size, rank_function function,
                           rank_thread *ranks, ty_error *error)
{
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = (rank_thread){.transport = transports[i], .function = function};
        if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]) != 0)
            return ty_fail(error, TY_EBACKEND, "no thread for rank %u", i);
    }
    for (uint32_t i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
    return TY_OK;
}

ty_status rank_threads_all(rank_open open, uint32_t size, rank_function function, ty_error *error)
{
    ty_transport *transports[RANK_THREADS_MOST];
    rank_thread ranks[RANK_THREADS_MOST];
    ty_status status;

    TY_CHECK(open(size, transports, error), status, done);
    TY_CHECK(rank_threads_run(transports, size, function, ranks, error), status, done);
    for (uint32_t i = 0; i < size && status == TY_OK; i++)
        if (ranks[i].status != TY_OK)
            status = ty_fail(error, ranks[i].status, "%u ranks, rank %u: %s", size, i,
                             ranks[i].error.message);
done:
    return status;
}

static void wrapped_close(ty_transport *transport)
{
    ty_transport *inner = ((wrapped_transport *)transport)->inner; /* its first member is this */

    inner->is_broken = transport->is_broken;
    inner->close(inner);
}

wrapped_transport transport_wrap(ty_transport *inner)
{
    wrapped_transport wrapped = {.transport = *inner, .inner = inner};

    wrapped.transport.close = wrapped_close;
    return wrapped;
}
