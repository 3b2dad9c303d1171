/* libFuzzer: any bytes are refused with a message, or give a router that keeps its rules. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/io/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_config config;
    struct mr_error err = {""};
    char *text = malloc(size ? size : 1); /* of exactly size, so that ASan guards its end */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    enum mr_status status = mr_config_parse(text, size, "fuzz", &config, &err);
    free(text);
    if (status != MR_OK) {
        if (!*err.text) abort();
        return 0;
    }
    if (mr_router_check(&config.router, "fuzz", &err) != MR_OK) abort();
    if (config.moe_layer_count < 1 || config.moe_layer_count > config.layers) abort();
    for (int i = 0; i < config.moe_layer_count; i++)
        if (config.moe_layers[i] < 0 || config.moe_layers[i] >= config.layers ||
            (i && config.moe_layers[i] <= config.moe_layers[i - 1]))
            abort();
    if (config.source_count > MR_CONFIG_FIELDS || !mr_config_gate_name(&config)) abort();
    return 0;
}
