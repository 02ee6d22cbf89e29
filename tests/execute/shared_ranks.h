/* Ranks as threads of one process that share memory as the ranks of one host do. */
#ifndef TY_TEST_SHARED_RANKS_H
#define TY_TEST_SHARED_RANKS_H

#include "transport.h"

/** As ty_transport_local. @param out [size] */
ty_status shared_ranks_open(uint32_t size, ty_transport **out, ty_error *error);

#endif
