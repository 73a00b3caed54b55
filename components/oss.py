"""Where nodes reach OSS and Alibaba Cloud's other services, by region: facts that a network is closed by."""

from __future__ import annotations

from collections.abc import Mapping

SERVICE_NETWORK = "100.64.0.0/10"
"""Where Alibaba Cloud's own services are, in every VPC (VPC user guide, "Gateway endpoints", "Background information").

A VPC's system routes lead there; no network of one's own may lie in it.
"""

ADDRESSES: Mapping[str, tuple[str, ...]] = {
    region: tuple(networks.split())
    for region, networks in {
        "ap-northeast-1": "100.114.211.0/24 100.114.114.0/25",
        "ap-southeast-1": "100.118.219.0/24 100.99.213.0/24 100.99.116.0/24 100.99.117.0/24",
        "ap-southeast-3": "100.118.165.0/24 100.99.125.0/24 100.99.130.0/24 100.99.131.0/24",
        "ap-southeast-5": "100.114.98.0/24",
        "cn-beijing": "100.118.58.0/24 100.118.167.0/24 100.118.170.0/24 100.118.171.0/24 100.118.172.0/24 "
        "100.118.173.0/24",
        "cn-chengdu": "100.115.155.0/24 100.99.107.0/24 100.99.108.0/24 100.99.109.0/24",
        "cn-guangzhou": "100.115.33.0/24 100.114.101.0/24",
        "cn-hangzhou": "100.118.28.0/24 100.114.102.0/24 100.98.170.0/24 100.118.31.0/24",
        "cn-heyuan": "100.98.83.0/24 100.118.174.0/24",
        "cn-hongkong": "100.115.61.0/24 100.99.103.0/24 100.99.104.0/24 100.99.106.0/24",
        "cn-huhehaote": "100.118.195.0/24 100.99.110.0/24 100.99.111.0/24 100.99.112.0/24",
        "cn-qingdao": "100.115.173.0/24 100.99.113.0/24 100.99.114.0/24 100.99.115.0/24",
        "cn-shanghai": "100.98.35.0/24 100.98.110.0/24 100.98.169.0/24 100.118.102.0/24",
        "cn-shenzhen": "100.118.78.0/24 100.118.203.0/24 100.118.204.0/24 100.118.217.0/24",
        "cn-wulanchabu": "100.114.11.0/24 100.114.12.0/24 100.114.100.0/24 100.118.214.0/24",
        "cn-zhangjiakou": "100.118.90.0/24 100.98.159.0/24 100.114.0.0/24 100.114.1.0/24",
        "eu-central-1": "100.115.154.0/24",
        "eu-west-1": "100.114.114.128/25",
        "me-east-1": "100.99.235.0/24",
        "us-east-1": "100.115.60.0/24 100.99.100.0/24 100.99.101.0/24 100.99.102.0/24",
        "us-west-1": "100.115.107.0/24",
    }.items()
}
"""Networks that a region's buckets are reached at inside a VPC (OSS user guide, "Regions and endpoints", "Internal VIP
CIDR blocks"), for each region where OSS has gateway endpoints ("Regions of gateway endpoints supported by OSS"), both
read in 2026. Any of them may answer: "do not forbid access from the VIP ranges ... in the security group".
"""
