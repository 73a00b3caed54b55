"""The frameworks that controls are mapped to, and whose mappings they are.

The mappings are those that authors of tools made, and our own where a row says so. They are no legal advice, and no
proof of compliance: a framework asks for much that no resource shows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """A framework, the version that clauses are of, and where the mapping was taken from."""

    name: str
    title: str
    version: str
    source: str


PROWLER = "prowler-cloud/prowler, prowler/compliance/aws and alibabacloud (Apache-2.0)"

FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework("hipaa", "HIPAA Security Rule", "45 CFR 164", PROWLER),
        Framework("gdpr", "General Data Protection Regulation", "Regulation (EU) 2016/679", PROWLER),
        Framework("cis", "CIS Foundations Benchmarks", "AWS 7.0, Alibaba Cloud 2.0", PROWLER),
        Framework("soc2", "SOC 2 Trust Services Criteria", "2017 (rev. 2022)", PROWLER),
        Framework("iso27001", "ISO/IEC 27001", "2022, Annex A", PROWLER),
        Framework("pci", "PCI DSS", "4.0", PROWLER),
    )
}
DISCLAIMER = (
    "The mappings to clauses are those of the authors of tools and our own. They are no legal advice and no proof of "
    "compliance."
)
