/**
 * @file prices.h
 * Prices of devices: from a question, from hosts of a cluster, and from
 * study/catalogue/prices.json. Internal to study/economics/.
 */
#ifndef TY_STUDY_PRICES_H
#define TY_STUDY_PRICES_H

#include "ty_economics.h"

#define TY_MOST_GIVEN_PRICES 32

typedef struct ty_price {
    double usd_per_device_hour;
    char kind[24]; /* "": unknown price */
    char note[200];
} ty_price;

typedef struct ty_prices {
    ty_json_document *document; /* of the catalogue */
    const ty_json *rows, *sources;
    char kind[24]; /* requested kind; "": any */
    uint32_t given_count;
    struct {
        char *device; /* NULL: every one */
        double usd_per_device_hour;
    } given[TY_MOST_GIVEN_PRICES];
} ty_prices;

/** @param text as in ty_cost_question.price; NULL: the catalogue's
 *  @param out clear with ty_prices_clear, also after a failure */
ty_status ty_prices_open(const char *text, ty_prices *out, ty_error *error) TY_MUST_CHECK;
void ty_prices_clear(ty_prices *prices);

/** @param host NULL: unknown
 * @param host_devices number of devices that share the host's price */
ty_status ty_price_of(const ty_prices *prices, const ty_host_type *host, uint32_t host_devices,
                      const ty_device_type *device, ty_price *out, ty_error *error) TY_MUST_CHECK;

/** "700W", "0.05" or a factor, "x0.9". @param unit may follow the number
 *  @param option named in the message */
ty_status ty_read_or_factor(const char *text, const char *unit, const char *option, double *value,
                            bool *is_factor, ty_error *error) TY_MUST_CHECK;

#endif
