#!/bin/bash
# After https://github.com/vllm-project/vllm/blob/029e67cd28a384cbe019ce4427b26d93028ae7d3/docs/features/nixl_connector_usage.md, written anew: a producer and a consumer on one machine.
export HF_TOKEN=replace-me-with-a-token
MODEL=Qwen/Qwen3-32B

CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_NIXL_SIDE_CHANNEL_PORT=5600 \
vllm serve "$MODEL" --port 8100 -tp 4 --max-model-len 32768 --enforce-eager \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cuda"}' > prefill.log 2>&1 &

CUDA_VISIBLE_DEVICES=4,5 VLLM_NIXL_SIDE_CHANNEL_PORT=5601 \
vllm serve "$MODEL" --port 8200 -tp 2 --max-model-len 32768 --enforce-eager \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cuda"}' &
wait
