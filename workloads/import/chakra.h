/**
 * @file chakra.h
 * Chakra execution traces: one rank's nodes with their dependencies. Internal to workloads/.
 * Source: mlcommons/chakra schema/protobuf/et_def.proto, version 0.0.4.
 */
#ifndef TY_WORKLOADS_CHAKRA_H
#define TY_WORKLOADS_CHAKRA_H

#include "import.h"
#include "traced_graph.h"
#include "wire.h"

typedef enum ty_chakra_type {
    TY_CHAKRA_COMPUTE = 4,
    TY_CHAKRA_SEND = 5,
    TY_CHAKRA_RECEIVE = 6,
    TY_CHAKRA_COLLECTIVE = 7,
    TY_CHAKRA_TYPE_COUNT = 11
} ty_chakra_type;

/* Fields of messages. */
enum { TY_CHAKRA_VERSION = 1, TY_CHAKRA_METADATA_ATTRIBUTE = 2 };
enum {
    TY_CHAKRA_ID = 1,
    TY_CHAKRA_NAME = 2,
    TY_CHAKRA_TYPE = 3,
    TY_CHAKRA_CONTROL = 4,
    TY_CHAKRA_DATA = 5,
    TY_CHAKRA_DURATION = 7,
    TY_CHAKRA_ATTRIBUTE = 10
};
enum {
    TY_CHAKRA_ATTRIBUTE_NAME = 1,
    TY_CHAKRA_DOUBLE = 3,
    TY_CHAKRA_INT32 = 7,
    TY_CHAKRA_INT64 = 9,
    TY_CHAKRA_UINT64 = 13,
    TY_CHAKRA_BOOL = 27,
    TY_CHAKRA_STRING = 29
};

/** Trainyard's own attributes, so that an import gives the same workload: of layers (compute
 * nodes), of their other passes ("trainyard.part_of"), and of the workload. */
#define TY_CHAKRA_PART_OF "trainyard.part_of"
#define TY_CHAKRA_FORWARD_S "trainyard.forward_s"
#define TY_CHAKRA_BACKWARD_S "trainyard.backward_s"
#define TY_CHAKRA_FORWARD_FLOP "trainyard.forward_flop"
#define TY_CHAKRA_BACKWARD_FLOP "trainyard.backward_flop"
#define TY_CHAKRA_PARAMETER_BYTES "trainyard.parameter_bytes"
#define TY_CHAKRA_OUTPUT_ELEMENTS "trainyard.output_elements"
#define TY_CHAKRA_IS_TIMED "trainyard.is_timed"
#define TY_CHAKRA_IS_VIEW "trainyard.is_view"
#define TY_CHAKRA_WORKLOAD "trainyard.name"
#define TY_CHAKRA_SOURCE "trainyard.source"
#define TY_CHAKRA_GLOBAL_BATCH "trainyard.global_batch"
#define TY_CHAKRA_INPUT_ELEMENTS "trainyard.input_elements"
/** The workload as trainyard.workload/1, and the SHA-256 of everything after the metadata: if that
 * is unchanged, the import reads this workload. */
#define TY_CHAKRA_WHOLE "trainyard.workload"
#define TY_CHAKRA_NODES "trainyard.nodes_sha256"

#endif
