/**
 * @file chakra_write.h
 * Writes Chakra execution traces: messages with their attributes. For workloads/, and for the
 * traces of plans in reports/.
 *
 *     ty_text message = {0};
 *     ty_chakra_begin_node(&message, 0, "forward 0", "", TY_CHAKRA_COMPUTE);
 *     ty_chakra_put_integer(&message, TY_CHAKRA_ATTRIBUTE, "num_ops", TY_CHAKRA_INT64, 1000);
 *     ty_chakra_put_message(&file, &message);   // clears the message
 */
#ifndef TY_WORKLOADS_CHAKRA_WRITE_H
#define TY_WORKLOADS_CHAKRA_WRITE_H

#include "chakra.h"

/* Attributes. @param field TY_CHAKRA_ATTRIBUTE of a node, TY_CHAKRA_METADATA_ATTRIBUTE of a file
 * @param variant TY_CHAKRA_INT32, TY_CHAKRA_INT64, TY_CHAKRA_UINT64 or TY_CHAKRA_BOOL */
void ty_chakra_put_integer(ty_text *message, uint32_t field, const char *name, uint32_t variant,
                           uint64_t value);
void ty_chakra_put_number(ty_text *message, const char *name, double value);
void ty_chakra_put_string(ty_text *message, uint32_t field, const char *name, const char *value);

/** The name is `name` and `suffix`. */
void ty_chakra_begin_node(ty_text *node, uint64_t id, const char *name, const char *suffix,
                          uint32_t type);
/** Attributes of a compute node for Chakra simulators: integer microseconds, operations, bytes. */
void ty_chakra_put_work(ty_text *node, double seconds, double flop, uint64_t bytes);
/** Appends length and message to the file. */
void ty_chakra_put_message(ty_text *file, ty_text *message);

#endif
