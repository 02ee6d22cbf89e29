/* The graph of Piper's gnmt.json: 78 operators of GNMT with eight LSTM layers on either side. Its
 * edges are those of msr-fiddle/piper, inputs/gnmt.json; it has 17,914 ideals. */
#ifndef TY_TEST_GNMT_SHAPE_H
#define TY_TEST_GNMT_SHAPE_H

#include "ty_partition.h"

#define GNMT_LAYERS 78
#define GNMT_MOST_EDGES 128

/** How many edges it has. */
uint32_t gnmt_edges(ty_graph_edge edges[GNMT_MOST_EDGES]);

#endif
