/* Names in brackets, as Slurm writes them: "node[01-04,07],login1", "rack[1-2]n[1-4]". */
#ifndef TY_HOSTLIST_H
#define TY_HOSTLIST_H

#include "ty_core.h"

typedef ty_status (*hostlist_visit)(void *data, const char *name, ty_error *error);

/**
 * Calls `visit` for each name, in order; stops at the first failure.
 * @param limit names at most; more are refused before the first is visited
 * @param where prefix of messages: "topology.conf:3"
 */
ty_status hostlist_each(const char *text, size_t length, uint64_t limit, const char *where,
                        hostlist_visit visit, void *data, ty_error *error) TY_MUST_CHECK;

#endif
