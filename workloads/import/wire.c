/* The wire format of protocol buffers. */
#include "wire.h"

#include <string.h>

ty_wire ty_wire_of(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    return (ty_wire){at, at + length, false};
}

uint64_t ty_wire_varint(ty_wire *wire)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    wire->is_broken = true;
    return 0;
}

static uint64_t fixed(ty_wire *wire, unsigned bytes)
{
    uint64_t value = 0;
    if (ty_wire_length(wire) < bytes) {
        wire->is_broken = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)*wire->at++ << (8 * i);
    return value;
}

bool ty_wire_next(ty_wire *wire, ty_wire_field *field)
{
    uint64_t key, length;

    if (wire->is_broken || wire->at == wire->end)
        return false;
    key = ty_wire_varint(wire);
    *field = (ty_wire_field){.number = (uint32_t)(key >> 3), .type = (ty_wire_type)(key & 7)};
    if (key >> 3 == 0 || key >> 3 > UINT32_MAX / 8)
        wire->is_broken = true;
    else if (field->type == TY_WIRE_VARINT)
        field->value = ty_wire_varint(wire);
    else if (field->type == TY_WIRE_64)
        field->value = fixed(wire, 8);
    else if (field->type == TY_WIRE_32)
        field->value = fixed(wire, 4);
    else if (field->type == TY_WIRE_BYTES) {
        length = ty_wire_varint(wire);
        if (length > ty_wire_length(wire))
            wire->is_broken = true;
        if (wire->is_broken)
            return false;
        field->bytes = ty_wire_of(wire->at, (size_t)length);
        wire->at += length;
    } else {
        wire->is_broken = true; /* groups are deprecated */
    }
    return !wire->is_broken;
}

bool ty_wire_is(const ty_wire *bytes, const char *text)
{
    size_t length = strlen(text);
    return ty_wire_length(bytes) == length && memcmp(bytes->at, text, length) == 0;
}

int ty_wire_compare(const ty_wire *a, const ty_wire *b)
{
    size_t x = ty_wire_length(a), y = ty_wire_length(b), shorter = x < y ? x : y;
    int order = shorter > 0 ? memcmp(a->at, b->at, shorter) : 0;
    return order != 0 ? order : (x > y) - (x < y);
}

double ty_wire_number(const ty_wire_field *field)
{
    uint32_t bits = (uint32_t)field->value;
    double wide = 0;
    float narrow = 0;

    if (field->type == TY_WIRE_64) {
        memcpy(&wide, &field->value, sizeof wide);
        return wide;
    }
    if (field->type == TY_WIRE_32) {
        memcpy(&narrow, &bits, sizeof narrow);
        return (double)narrow;
    }
    return (double)(int64_t)field->value;
}

void ty_wire_integers(const ty_wire_field *field, int64_t *out, uint32_t most, uint32_t *count)
{
    ty_wire packed = field->bytes;

    if (field->type != TY_WIRE_BYTES) {
        if (*count < most)
            out[*count] = (int64_t)field->value;
        *count += *count < UINT32_MAX;
        return;
    }
    while (packed.at < packed.end && !packed.is_broken) {
        int64_t value = (int64_t)ty_wire_varint(&packed);
        if (packed.is_broken)
            return;
        if (*count < most)
            out[*count] = value;
        *count += *count < UINT32_MAX;
    }
}

void ty_wire_put_varint(ty_text *text, uint64_t value)
{
    char bytes[10];
    size_t length = 0;

    do {
        bytes[length++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    ty_text_append(text, bytes, length);
}

void ty_wire_put_uint(ty_text *text, uint32_t number, uint64_t value)
{
    ty_wire_put_varint(text, (uint64_t)number << 3 | TY_WIRE_VARINT);
    ty_wire_put_varint(text, value);
}

void ty_wire_put_double(ty_text *text, uint32_t number, double value)
{
    uint64_t bits;
    char bytes[8];

    memcpy(&bits, &value, sizeof bits);
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (char)(bits >> (8 * i) & 0xff);
    ty_wire_put_varint(text, (uint64_t)number << 3 | TY_WIRE_64);
    ty_text_append(text, bytes, 8);
}

void ty_wire_put_bytes(ty_text *text, uint32_t number, const void *bytes, size_t length)
{
    ty_wire_put_varint(text, (uint64_t)number << 3 | TY_WIRE_BYTES);
    ty_wire_put_varint(text, length);
    ty_text_append(text, bytes, length);
}
