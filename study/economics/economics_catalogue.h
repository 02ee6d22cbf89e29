/**
 * @file economics_catalogue.h
 * Reads study/catalogue/economics.json. Internal to study/economics/.
 */
#ifndef TY_STUDY_ECONOMICS_CATALOGUE_H
#define TY_STUDY_ECONOMICS_CATALOGUE_H

#include "ty_economics.h"

typedef struct ty_economics_catalogue {
    double device_mtbf_s, host_mtbf_s, restart_s;
    double checkpoint_bytes_per_s_per_host;
    double idle_power_share;      /* of the rated power */
    double host_power_overhead;   /* over the devices' rated power */
    ty_interval busy_power_share; /* of the rated power, while devices compute */
} ty_economics_catalogue;

ty_status ty_economics_catalogue_load(ty_economics_catalogue *out, ty_error *error) TY_MUST_CHECK;

#endif
