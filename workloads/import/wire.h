/**
 * @file wire.h
 * The encoding of protocol buffers, read in place and written: numbered fields that are integers, 4
 * or 8 bytes, or byte strings, which may be messages again. Internal to workloads/.
 *
 * A few dozen lines instead of protobuf-c and its generator: only some fields of the two formats
 * are needed, nothing is copied, a trace is read message by message, and sizes claimed by a hostile
 * file use no memory. Source: protobuf.dev/programming-guides/encoding.
 */
#ifndef TY_WORKLOADS_WIRE_H
#define TY_WORKLOADS_WIRE_H

#include "ty_core.h"

typedef struct ty_wire { /* the unread rest of a message; borrowed */
    const uint8_t *at, *end;
    bool is_broken; /* after an encoding error; reading stops */
} ty_wire;

typedef enum ty_wire_type {
    TY_WIRE_VARINT = 0,
    TY_WIRE_64 = 1,
    TY_WIRE_BYTES = 2,
    TY_WIRE_32 = 5
} ty_wire_type;

typedef struct ty_wire_field {
    uint32_t number;
    ty_wire_type type;
    uint64_t value; /* of numbers, as bits */
    ty_wire bytes;  /* of byte strings */
} ty_wire_field;

ty_wire ty_wire_of(const void *bytes, size_t length);
/** The next field; false at the end and if the message is broken. */
bool ty_wire_next(ty_wire *wire, ty_wire_field *field);
/** Reads a single varint; sets is_broken on failure. */
uint64_t ty_wire_varint(ty_wire *wire);

static inline size_t ty_wire_length(const ty_wire *wire)
{
    return (size_t)(wire->end - wire->at);
}
bool ty_wire_is(const ty_wire *bytes, const char *text);
/** Compares bytes, as an order of names. */
int ty_wire_compare(const ty_wire *a, const ty_wire *b);
/** The double or float in a field, by its type. */
double ty_wire_number(const ty_wire_field *field);

/**
 * Integers of a repeated field, packed or one by one: call with every field of that number.
 * @param count [in, out] number so far; only the first `most` are stored
 */
void ty_wire_integers(const ty_wire_field *field, int64_t *out, uint32_t most, uint32_t *count);

/* Writes to a growing text. */
void ty_wire_put_varint(ty_text *text, uint64_t value);
void ty_wire_put_uint(ty_text *text, uint32_t number, uint64_t value);
void ty_wire_put_double(ty_text *text, uint32_t number, double value);
void ty_wire_put_bytes(ty_text *text, uint32_t number, const void *bytes, size_t length);

#endif
